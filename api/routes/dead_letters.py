"""The operations on dead letters: list, redrive, discard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from api.asgi import Answer, Request, encode
from api.routes import for_caller
from api.routes.batch_results import TO_MANY, answer_ids, result_of
from api.routes.by import by_hand, tell
from api.routes.redacting import redacted
from api.service import Operations, Service
from api.wire.problems import Problem
from api.wire.requests import LIMIT, MOST, IdsIn, RedriveIn, call_of, decode, instant_of, limit_of
from delayq import InvalidMessage, StoreError
from delayq.answers.messages import DeadGroupsOut, DeadLettersOut, dead_groups_out, dead_letter_out
from delayq.answers.results import EndedOut
from delayq.client.audit import By
from delayq.client.looking.dead_letters import DeadLetterPage, Wanted
from delayq.client.looking.dead_letters import dead_letters as dead_letters_of
from delayq.client.looking.search import MOST_SECONDS
from delayq.domain.message import check_id
from delayq.domain.patterns import check_pattern
from delayq.store.commands import Found

OPERATIONS = Operations("deadLetters")

_ids = msgspec.json.Decoder(IdsIn)
_redrive = msgspec.json.Decoder(RedriveIn)

#: A page is gathered in steps. It ends early after this many letters or bytes, because bodies may be large.
STEP: Final = 25
MOST_STEPS: Final = 200
PAGE_BYTES: Final = 4 * 1024 * 1024


@OPERATIONS.add(
    "GET",
    "/v1/dead-letters",
    "listDeadLetters",
    gives={200: DeadLettersOut},
    problems=(400, 503),
    query={
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "The nextPageToken of the previous page."},
        "order": {"schema": {"type": "string", "enum": ["oldest", "newest"], "default": "oldest"}},
        "topic": {"schema": {"type": "string", "maxLength": 255}, "description": "A pattern with * and ?."},
        "reason": {
            "schema": {"type": "string", "maxLength": 255},
            "description": "A part of the reason, in upper or lower case.",
        },
        "group": {
            "schema": {"type": "string"},
            "description": "The exact reason of a group from /v1/dead-letters:groups.",
        },
        "from": {
            "schema": {"type": "string"},
            "description": "Earliest time of death: RFC 3339 with its zone, or Unix ms.",
        },
        "to": {
            "schema": {"type": "string"},
            "description": "Latest time of death, exclusive: RFC 3339 with its zone, or Unix ms.",
        },
    },
)
async def dead_letters(service: Service, request: Request) -> Answer:
    """List dead letters

    Sorted by the time of death. A page may have fewer than `limit`, if messages are large, matches are rare, or the key
    sees few of them. The last page has no token. A page is empty and has a token only if one second was not enough to
    find a letter. A token is valid for the same order and filters.
    """
    given = request.query("limit", "pageToken", "order", "topic", "reason", "group", "from", "to")
    limit = limit_of(given.get("limit"))
    token = given.get("pageToken")
    caller = request.caller
    everything = caller.everything("read")
    wanted = Wanted(
        newest=_newest(given.get("order", "oldest")),
        topic=given.get("topic", ""),
        reason=given.get("reason", ""),
        group=given.get("group"),
        from_=instant_of("from", given.get("from")),
        to=instant_of("to", given.get("to")),
        may=None if everything else lambda topic: "read" in caller.on(topic),
    )
    if "topic" in given:
        caller.need_if_named("read", check_pattern(given["topic"], "topic"))
    if token is not None and not everything:
        token = service.door.unseal(token)
    letters: list[Found] = []
    size = steps = 0
    began = service.clock.precise()
    while True:
        left = limit - len(letters)
        page = await _page(service, min(STEP, left) or 1, token, wanted)
        if not left and page.letters:
            break  # the next page begins with it
        letters += page.letters
        size, steps, token = size + page.size, steps + 1, page.next_token
        # For a key of some topics, a token reveals only that the key has more letters, not that others have.
        if token is None or (everything and len(letters) >= limit):
            break
        enough = size >= PAGE_BYTES or steps >= MOST_STEPS
        if enough and (letters or service.clock.precise() - began >= MOST_SECONDS * 1000):
            break
    if token is not None and not everything:
        token = service.door.seal(token)
    shown = [dead_letter_out(letter) for letter in letters]
    await redacted(service, (one.message for one in shown))
    return Answer(200, encode(DeadLettersOut(shown, token)))


async def _page(service: Service, limit: int, token: str | None, wanted: Wanted) -> DeadLetterPage:
    return await service.client.read(lambda context: dead_letters_of(context, limit, token, wanted))


def _newest(order: str) -> bool:
    if order not in ("oldest", "newest"):
        raise InvalidMessage("order", "must be 'oldest' (first) or 'newest'")
    return order == "newest"


@OPERATIONS.add(
    "GET",
    "/v1/dead-letters:groups",
    "groupDeadLetters",
    gives={200: DeadGroupsOut},
    problems=(400, 503),
    query={"limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}}},
)
async def dead_groups(service: Service, request: Request) -> Answer:
    """List groups of dead letters

    Groups the newest 20,000 dead letters by topic and reason, largest group first. `complete` is true if there are no
    older ones. Numbers in reasons are ignored. The groups are computed at most once per second for all callers.
    """
    limit = limit_of(request.query("limit").get("limit"))
    found = await service.dead_groups.get()
    caller = request.caller
    if not caller.everything("read"):
        groups = [one for one in found.groups if one.topic and "read" in caller.on(one.topic)]
        found = msgspec.structs.replace(found, groups=groups, looked=sum(one.count for one in groups))
    return Answer(200, encode(dead_groups_out(found, limit)))


@OPERATIONS.add(
    "POST", "/v1/dead-letters:redrive", "redriveDeadLetters", takes=RedriveIn, example={"ids": ["order-42"]}, **TO_MANY
)
async def redrive(service: Service, request: Request) -> Answer:
    """Redrive dead letters

    Puts dead letters back into the queue, due now. The answer has a result for each id, in order: `scheduled`,
    `notDead`, `noRoute`, or `corrupt`. A repeated `call` gets the first answer as long as the id is known.
    """
    given = decode(_redrive, await request.json_text(service.settings.request_limit))
    by = by_hand(request, given.reason)
    ask = partial(for_caller.redrive, service, request.caller, by, call_of(given))
    return await _mend(service, given, by, ask, "redrive")


@OPERATIONS.add(
    "POST", "/v1/dead-letters:discard", "discardDeadLetters", takes=IdsIn, example={"ids": ["order-42"]}, **TO_MANY
)
async def discard_many(service: Service, request: Request) -> Answer:
    """Discard dead letters

    Deletes dead letters permanently. The answer has a result for each id, in order: `discarded` (now or before) or
    `notDead`.
    """
    given = decode(_ids, await request.json_text(service.settings.request_limit))
    by = by_hand(request, given.reason)
    return await _mend(service, given, by, partial(for_caller.discard, service, request.caller, by), "discard")


_STATUS: Final = {"scheduled": 200, "discarded": 200}


async def _mend(
    service: Service, given: IdsIn, by: By, ask: Callable[[Sequence[str]], Awaitable[Sequence[Any]]], action: str
) -> Answer:
    try:
        return await answer_ids(given.ids, service.settings.batch_limit, ask, partial(result_of, statuses=_STATUS))
    finally:
        tell(service, by, action)


@OPERATIONS.add(
    "DELETE",
    "/v1/dead-letters/{id}",
    "discardDeadLetter",
    gives={200: EndedOut},
    problems=(400, 404, 503),
)
async def discard(service: Service, request: Request) -> Answer:
    """Discard a dead letter"""
    request.query()
    id = check_id(request.path_params["id"])
    by = by_hand(request)
    (outcome,) = await for_caller.discard(service, request.caller, by, [id])
    if isinstance(outcome, (Problem, StoreError)):
        raise outcome
    if outcome == "notDead":
        raise Problem("not-found", "No dead letter has this id.", field="id", id=id)
    tell(service, by, "discard")
    return Answer(200, encode(EndedOut(id, outcome)))
