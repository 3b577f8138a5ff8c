"""What a plan is, and how one asks for ids and queues while there may be more than one layout.

A plan is an operation without I/O, which yields commands and is sent their answers. An id is asked for in the oldest
layout first; only a closed queue that does not have it sends on to the next. With one layout that is one round trip, and
nothing here costs another. Only an id that nobody has may be one that its caller gave beside an ordering key: then every
queue is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from delayq.client.by_policy import PolicyBook
from delayq.client.known_routes import KnownRoutes
from delayq.errors import StoreError, StoreUnavailable
from delayq.message import Limits
from delayq.store import commands
from delayq.store.commands import Command, Retention
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Layout, Layouts, QueueKeys, queue_keys

__all__ = ["CHUNK", "Context", "Plan", "by_asked_id", "by_id", "every_queue", "find_places"]

T = TypeVar("T")

#: A plan yields commands and is sent their answers (a StoreError in the place of a failed one).
Plan = Generator[Iterable[Command[Any]], list[Any], T]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What operations need to know: the layouts, limits, how long ended ids are remembered, the routes, the policies."""

    layouts: Layouts
    limits: Limits = Limits()
    retention: Retention = Retention()
    routes: KnownRoutes
    policies: PolicyBook = msgspec.field(default_factory=PolicyBook)


#: Messages in one script.
CHUNK: Final = 500


def find_places(context: Context, behind: Iterable[tuple[str, int]]) -> Plan[list[int | StoreError]]:
    """The queue to ask next for each id, behind the queue that said MOVED; the list of layouts is read if need be."""
    layouts = context.layouts
    wanted = list(behind)
    unread: StoreError | None = None
    if any(queue >= layouts.known[-1].first for _, queue in wanted):
        (listed,) = yield [commands.layouts()]
        if isinstance(listed, StoreError):
            unread = listed
        else:
            layouts.take(listed)
    nowhere = unread or StoreUnavailable(
        "the queues are closed and delayq:meta lists no newer layout; run the same `delayq reshard` again"
    )
    found = (layouts.place(id, queue) for id, queue in wanted)
    return [nowhere if place is None else place for place in found]


def by_id(
    context: Context,
    ids: Iterable[str],
    ask: Callable[[QueueKeys, list[str]], Command[list[T]]],
    moved: Callable[[T], bool],
) -> Plan[dict[str, Any]]:
    """What became of each id: an answer, or a StoreError."""
    results: dict[str, Any] = {}
    behind = dict.fromkeys(ids, -1)
    while behind:
        places = yield from find_places(context, behind.items())
        queues: dict[int, list[str]] = {}
        for id, place in zip(behind, places, strict=True):
            if isinstance(place, StoreError):
                results[id] = place
            else:
                queues.setdefault(place, []).append(id)
        chunks = [(queue, ids[n : n + CHUNK]) for queue, ids in queues.items() for n in range(0, len(ids), CHUNK)]
        if not chunks:
            break
        answers = yield [ask(queue_keys(queue), some) for queue, some in chunks]
        behind = {}
        for (queue, some), answer in zip(chunks, answers, strict=True):
            if isinstance(answer, StoreError):
                results.update(dict.fromkeys(some, answer))
                continue
            results.update(zip(some, answer, strict=True))
            gone = [id for id, one in zip(some, answer, strict=True) if moved(one)]
            if gone:
                context.layouts.shut.add(queue)
                behind.update(dict.fromkeys(gone, queue))
    return results


def by_asked_id(
    context: Context,
    ids: Sequence[str],
    ask: Callable[[QueueKeys, list[str], list[str]], Command[list[T]]],
    moved: Callable[[T], bool],
    missing: Callable[[T], bool],
) -> Plan[dict[str, Any]]:
    """The same, where an id may also be the one that was given before the suffix of an ordering key was put behind it.

    `ask` gets the whole ids, and those by which they were asked for. An id that stands for several messages finds none.
    """
    results = yield from by_id(context, ids, lambda keys, some: ask(keys, some, some), moved)
    lost = [
        id
        for id, answer in results.items()
        if not isinstance(answer, StoreError) and missing(answer) and not Layout.has_suffix(id)
    ]
    if not lost:
        return results
    try:
        whole = yield from _whole_ids(context, lost)
    except StoreError as error:  # they may be there
        return results | dict.fromkeys(lost, error)
    given = {one: id for id, one in whole.items()}
    again = yield from by_id(context, given, lambda keys, some: ask(keys, some, [given[one] for one in some]), moved)
    return results | {given[one]: answer for one, answer in again.items()}


def _whole_ids(context: Context, ids: Sequence[str]) -> Plan[dict[str, str]]:
    """The whole ids, of those that stand for one message; raises StoreError."""
    found: dict[str, set[str]] = {}
    for start in range(0, len(ids), CHUNK):
        some = ids[start : start + CHUNK]
        pages = yield from every_queue(context, partial(commands.asked, ids=some))
        for page in pages.values():
            for id, ones in zip(some, page, strict=True):
                found.setdefault(id, set()).update(ones)
    return {id: next(iter(ones)) for id, ones in found.items() if len(ones) == 1}


def every_queue(context: Context, ask: Callable[[QueueKeys], Command[T]]) -> Plan[dict[int, T]]:
    """What each queue of every layout answers; raises StoreError.

    The list of layouts is read along with the queues that are known, so that no message is missed that was there
    before.
    """
    layouts = context.layouts
    known = layouts.queues
    listed, *answers = all_good((yield [commands.layouts(), *(ask(queue_keys(queue)) for queue in known)]))
    layouts.take(listed)
    found: dict[int, T] = dict(zip(known, answers, strict=True))
    new = [queue for queue in layouts.queues if queue not in found]
    if new:
        answers = all_good((yield [ask(queue_keys(queue)) for queue in new]))
        found.update(zip(new, answers, strict=True))
    return {queue: found[queue] for queue in layouts.queues}
