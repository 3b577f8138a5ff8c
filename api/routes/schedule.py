"""The operations that schedule one message or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET

from api.asgi import Answer, Request, encode
from api.auth.caller import Caller
from api.service import Operations, Service
from api.wire import problems
from api.wire.problems import RETRY_AFTER, Problem
from api.wire.requests import BatchIn, MessageIn, decode, decode_each, message_of
from delayq import Conflict, DelayqError, InvalidMessage, Message, Scheduled, StoreError, TooManyPending
from delayq.answers.messages import ScheduledOut, scheduled_out
from delayq.answers.results import BatchOut, ItemOut
from delayq.answers.times import instant

OPERATIONS = Operations("messages")

Refusal = InvalidMessage | Problem
Outcome = Scheduled | DelayqError | Problem
G = TypeVar("G")
T = TypeVar("T")

_message = msgspec.json.Decoder(MessageIn)
_batch = msgspec.json.Decoder(BatchIn)

EXAMPLE: Final = {"topic": "orders.unpaid", "body": {"order": 42}, "delayTime": "30m", "keys": ["order-42"]}


@OPERATIONS.add(
    "POST",
    "/v1/messages",
    "scheduleMessage",
    takes=MessageIn,
    example=EXAMPLE,
    gives={201: ScheduledOut, 200: ScheduledOut},
    problems=(400, 408, 409, 413, 415, 503, 507),
)
async def schedule(service: Service, request: Request) -> Answer:
    """Schedule a message

    201: the message is scheduled. 200: the same message was scheduled or delivered before (`state` shows which). 409:
    the id belongs to another content, or was cancelled. `again` schedules an id that was certainly cancelled. After
    503, repeat the call with the id in the problem.
    """
    raw = await request.json_text(service.settings.request_limit)
    caller = request.caller
    message = caller.takes(message_of(decode(_message, raw)))
    if caller.quota is not None and not await service.quotas.take(caller, 1):
        raise service.quotas.full(caller)
    if service.client.group.full:
        detail = "Too many messages wait for Redis, and this one was not accepted. Repeat later, or send batches."
        raise Problem("overloaded", detail)
    counts = service.metrics.scheduled
    try:
        scheduled = await service.client.schedule(message)
    except (InvalidMessage, Conflict, TooManyPending, StoreError) as error:
        problem = problems.problem_of(error)
        counts[problem.kind] += 1
        raise problem from None
    counts["created" if scheduled.created else "repeated"] += 1
    return Answer(201 if scheduled.created else 200, encode(scheduled_out(scheduled)))


@OPERATIONS.add(
    "POST",
    "/v1/messages:batch",
    "scheduleMessages",
    takes=BatchIn,
    example={"messages": [EXAMPLE]},
    gives={200: BatchOut},
    problems=(400, 408, 413, 415, 503, 507),
)
async def schedule_many(service: Service, request: Request) -> Answer:
    """Schedule many messages

    Each message gets its own result, in order, with the status of a single call. An invalid message never affects the
    others. The answer is 503 or 507 only if every message failed because of the store; the results have their ids.
    """
    given = decode_each(
        await request.json_text(service.settings.request_limit), lambda raw: decode(_batch, raw).messages
    )

    def read(one: MessageIn | msgspec.Raw) -> Message:
        return request.caller.takes(message_of(one if isinstance(one, MessageIn) else decode(_message, one)))

    messages, refused = await admit(service, request.caller, given, read, lambda message: message)
    outcomes: list[Outcome] = []
    if messages:
        outcomes += await service.client.schedule_many(messages)
    return _answer_batch(service, with_refusals(outcomes, refused))


async def admit(
    service: Service, caller: Caller, given: Sequence[G], read: Callable[[G], T], message: Callable[[T], Message]
) -> tuple[list[T], dict[int, Refusal]]:
    """Read the items of a batch that the caller may schedule, and return them with the refusals of the others by index.

    `read` raises the refusal of an item, and `message` returns its message.
    """
    most = service.settings.batch_limit
    if len(given) > most:
        raise InvalidMessage("messages", f"at most {most} messages are accepted in a batch; {len(given)} were given")
    caller.count(len(given))
    refused: dict[int, Refusal] = {}
    items: list[T] = []
    for index, one in enumerate(given):
        try:
            item = read(one)
            if caller.quota is not None:  # refused messages take no quota
                message(item).validate(service.limits, service.clock.now())
            items.append(item)
        except (InvalidMessage, Problem) as error:
            refused[index] = error
    if caller.quota is not None:
        room = await service.quotas.take(caller, len(items))
        good = [index for index in range(len(given)) if index not in refused]
        refused.update(dict.fromkeys(good[room:], service.quotas.full(caller)))
        del items[room:]
    return items, refused


def with_refusals(outcomes: Sequence[T], refused: Mapping[int, Refusal]) -> list[T | Refusal]:
    """Return the outcomes and the refusals in the order of the items."""
    results: list[T | Refusal] = [*outcomes]
    for index in sorted(refused):  # ascending, so that each is inserted at its place
        results.insert(index, refused[index])
    return results


def _answer_batch(service: Service, outcomes: Sequence[Outcome]) -> Answer:
    results: list[ItemOut] = []
    counts: Counter[str] = Counter()
    created = 0
    for outcome in outcomes:
        if isinstance(outcome, Scheduled):
            due = outcome.due
            created += outcome.created
            status = 201 if outcome.created else 200
            window = UNSET if outcome.window is None else outcome.window
            results.append(ItemOut(status, outcome.id, outcome.queue, outcome.state, instant(due), due, window))
        else:
            problem = problems.problem_of(outcome)
            counts[problem.kind] += 1
            results.append(ItemOut(problem.out.status, problem.out.id, problem=problem.out))
    repeated = len(outcomes) - created - counts.total()
    service.metrics.scheduled.update(counts, created=created, repeated=repeated)
    if outcomes and counts["unavailable"] + counts["full"] == len(outcomes):
        kind = "unavailable" if counts["unavailable"] else "full"
        raise Problem(kind, "No message could be scheduled. Repeat each with the id in its result.", results=results)
    if outcomes and counts["quota"] + counts["pending"] == len(outcomes):
        detail = "Redis has no room for any of these messages. Cancel some waiting messages, or repeat later."
        kind = "quota" if counts["quota"] else "pending"
        raise Problem(kind, detail, retry_after=RETRY_AFTER, results=results)
    return Answer(200, encode(BatchOut(results)))
