"""What a client can do, without I/O: each operation is a plan that yields commands and gets their answers.

`Client` and `AsyncClient` run the same plans, so nothing is written twice.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from delayq.config import Settings
from delayq.errors import InvalidMessage, StoreError
from delayq.message import MAX_DUE, Limits, Message, check_id, check_key
from delayq.nodes import NodeLine, read_nodes
from delayq.plan import Context, Plan
from delayq.scheduling import CHUNK, Scheduled, level_delay, schedule
from delayq.store import checks, commands
from delayq.store.commands import DeadLetter, Found, QueueStats
from delayq.store.durability import Durability
from delayq.store.keys import Layout, queue_keys

__all__ = ["Cancelled", "Context", "DeadLetterPage", "Plan", "Rescheduled", "Scheduled", "schedule"]
FIND_LIMIT: Final = 1_000
#: Pages of FIND_LIMIT messages of a queue that one cancel by key goes through: it ends, whoever schedules meanwhile.
MOST_PAGES: Final = 1_000


class Cancelled(msgspec.Struct, frozen=True):
    """How a cancel went: 'cancelled', 'in_flight', 'delivered', 'dead' or 'not_found'."""

    id: str
    result: str


class Rescheduled(msgspec.Struct, frozen=True):
    """How a reschedule went: 'scheduled' with the new due (Unix ms), or why not."""

    id: str
    result: str
    due: int | None = None


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Dead letters, oldest first within a queue, and the token of the next page (None: this is the last)."""

    letters: list[DeadLetter]
    next_token: str | None


def _by_queue(layout: Layout, ids: Iterable[str]) -> dict[int, list[str]]:
    queues: dict[int, list[str]] = {}
    for id in dict.fromkeys(ids):
        queues.setdefault(layout.queue_of(id), []).append(id)
    return queues


def _chunks(queues: dict[int, list[str]]) -> list[tuple[int, list[str]]]:
    return [(queue, ids[start : start + CHUNK]) for queue, ids in queues.items() for start in range(0, len(ids), CHUNK)]


def cancel(context: Context, ids: Sequence[str]) -> Plan[list[Cancelled | StoreError]]:
    """Cancel messages by id; in order, how it went."""
    for id in ids:
        check_id(id)
    chunks = _chunks(_by_queue(context.layout, ids))
    answers = yield [commands.cancel(queue_keys(queue), some, retention=context.retention) for queue, some in chunks]
    results = _spread(chunks, answers)
    return [result if isinstance(result := results[id], StoreError) else Cancelled(id, result) for id in ids]


def _spread(chunks: list[tuple[int, list[str]]], answers: list[Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for (_, some), answer in zip(chunks, answers, strict=True):
        if isinstance(answer, StoreError):
            results.update(dict.fromkeys(some, answer))
        else:
            results.update(zip(some, answer, strict=True))
    return results


def cancel_by_key(context: Context, key: str) -> Plan[list[Cancelled | StoreError]]:
    """Cancel all pending messages that carry a business key; how each of them went, page by page.

    The error of a later page comes last: what stands before it was cancelled. Raises that of the first.
    """
    check_key(key, context.limits, "key")
    outcomes: list[Cancelled | StoreError] = []
    after = dict.fromkeys(range(context.layout.queues), "")
    for _ in range(MOST_PAGES):
        pages = yield [commands.find(queue_keys(queue), key, FIND_LIMIT, id) for queue, id in after.items()]
        for page in pages:
            if isinstance(page, StoreError):
                if not outcomes:
                    raise page
                return [*outcomes, page]
        outcomes += yield from cancel(context, sorted(id for page in pages for id in page))
        after = {queue: page[-1] for queue, page in zip(after, pages, strict=True) if len(page) == FIND_LIMIT}
        if not after:
            break
    return outcomes


def spec_of(limits: Limits, now: int, delay_time: int | None, expect_date: int | None, delay_level: int | None) -> str:
    """The due as the scripts read it; raises InvalidMessage."""
    Message(topic="t", delay_time=delay_time, expect_date=expect_date, delay_level=delay_level).validate(limits, now)
    if expect_date is not None:
        return f"a{expect_date}"
    return f"r{delay_time if delay_time is not None else level_delay(limits.delay_levels, delay_level)}"


def reschedule(context: Context, id: str, spec: str) -> Plan[Rescheduled]:
    """Give a message another due."""
    check_id(id)
    keys = queue_keys(context.layout.queue_of(id))
    result, due = _one((yield [commands.reschedule(keys, id, spec, retention=context.retention)]))
    if result == "invalid":
        raise InvalidMessage("delayTime", "the due lies too far ahead")
    return Rescheduled(id, result, due)


def _one(answers: list[Any]) -> Any:
    (answer,) = _all(answers)
    return answer


def _all(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
    return answers


def get(context: Context, ids: Sequence[str]) -> Plan[list[Found | None]]:
    """What is known of ids, in order; raises StoreError."""
    for id in ids:
        check_id(id)
    chunks = _chunks(_by_queue(context.layout, ids))
    answers = yield [commands.get(queue_keys(queue), some, retention=context.retention) for queue, some in chunks]
    results = _spread(chunks, answers)
    for result in results.values():
        if isinstance(result, StoreError):
            raise result
    return [results[id] for id in ids]


def _find_ids(context: Context, key: str) -> Plan[list[str]]:
    check_key(key, context.limits, "key")
    pages = _all((yield [commands.find(queue_keys(q), key, FIND_LIMIT) for q in range(context.layout.queues)]))
    return sorted(id for page in pages for id in page)


def find(context: Context, key: str) -> Plan[list[Found]]:
    """The messages that carry a business key and have not ended, by due; at most 1,000 of each queue."""
    ids = yield from _find_ids(context, key)
    found = [one for one in (yield from get(context, ids)) if one is not None and one.record is not None]
    return sorted(found, key=lambda one: (one.due if one.due is not None else MAX_DUE, one.id))


def stats(context: Context) -> Plan[list[QueueStats]]:
    """The figures of every queue."""
    return _all((yield [commands.stats(queue_keys(q)) for q in range(context.layout.queues)]))


def dead_letters(context: Context, limit: int, token: str | None = None) -> Plan[DeadLetterPage]:
    """A page of dead letters, queue by queue."""
    queue, after = _read_token(token)
    letters: list[DeadLetter] = []
    while queue < context.layout.queues:
        wanted = limit - len(letters)
        page = _one((yield [commands.dead_letters(queue_keys(queue), wanted, after)]))
        letters += page
        if len(letters) == limit:
            return DeadLetterPage(letters, _token(queue, page[-1]))
        queue, after = queue + 1, None
    return DeadLetterPage(letters, None)


def _token(queue: int, last: DeadLetter) -> str:
    return base64.urlsafe_b64encode(f"{queue} {last.buried} {last.id}".encode()).decode().rstrip("=")


def _read_token(token: str | None) -> tuple[int, tuple[int, str] | None]:
    if token is None:
        return 0, None
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        queue, buried, id = text.split(" ")
        return min(abs(int(queue)), 2**20), (abs(int(buried)) % 2**53, check_id(id))
    except (ValueError, InvalidMessage):
        raise InvalidMessage("pageToken", "is not a token that this API gave out; start without one") from None


def redrive(context: Context, ids: Sequence[str]) -> Plan[list[str | StoreError]]:
    """Put dead letters back, due now: 'scheduled', 'not_dead' or 'corrupt' of each, in order."""
    for id in ids:
        check_id(id)
    chunks = _chunks(_by_queue(context.layout, ids))
    answers = yield [commands.redrive(queue_keys(queue), some) for queue, some in chunks]
    results = _spread(chunks, answers)
    return [results[id] for id in ids]


def discard(context: Context, id: str) -> Plan[bool]:
    """Delete a dead letter for good; False if it is none."""
    check_id(id)
    removed: list[bool] = _one((yield [commands.discard(queue_keys(context.layout.queue_of(id)), [id])]))
    return removed[0]


def nodes(context: Context) -> Plan[dict[str, NodeLine]]:
    """The nodes by name, as their lines tell of them."""
    lines, now = _all((yield [commands.nodes(), commands.redis_now()]))
    return read_nodes(lines, now)


def durability(settings: Settings) -> Plan[Durability | None]:
    """Where a change has to be before it is answered (None: nothing to wait for).

    Raises ConfigError for a server that cannot keep DELAYQ_FSYNC=always.
    """
    waitaof = False
    if settings.fsync == "always":
        server: checks.Server = _one((yield [checks.server()]))
        waitaof = checks.has_waitaof(server)
        checks.refuse_fsync(server, "" if waitaof else _one((yield [checks.appendfsync()])))
    if not settings.min_replicas and not waitaof:
        return None
    return Durability(replicas=settings.min_replicas, waitaof=waitaof, timeout=settings.redis_timeout)
