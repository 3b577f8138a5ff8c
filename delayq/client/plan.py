"""Plans: operations without I/O, and the search for the queue of an id in several layouts.

A plan yields commands and is sent their answers. It looks for an id in the oldest layout first, and a closed queue that
does not have the id refers to the next layout. With one layout this is one round trip. Only an unknown id may be
without the suffix of its ordering key: then every queue is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.client.known_groups import KnownGroups
from delayq.client.known_policies import KnownPolicies
from delayq.client.known_routes import KnownRoutes
from delayq.domain.message import Limits
from delayq.store import commands
from delayq.store.commands import Command, Retention
from delayq.store.connect.exchange import all_good
from delayq.store.keys import KEYS, Keys, Layout, Layouts, QueueKeys

T = TypeVar("T")

#: A plan yields commands and is sent their answers (a StoreError in the place of a failed one).
Plan = Generator[Iterable[Command[Any]], list[Any], T]


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that plans need: layouts, keys, limits, the time that ended ids are remembered, routes, policies and groups."""

    layouts: Layouts
    keys: Keys = KEYS
    limits: Limits = Limits()
    retention: Retention = Retention()
    routes: KnownRoutes
    policies: KnownPolicies = msgspec.field(default_factory=KnownPolicies)
    groups: KnownGroups = msgspec.field(default_factory=KnownGroups)


#: Messages in one script call.
CHUNK: Final = 500


def find_places(context: Context, behind: Iterable[tuple[str, int]]) -> Plan[list[int | StoreError]]:
    """The next queue to ask for each id after a queue that answered MOVED; reads the list of layouts if it has to."""
    layouts = context.layouts
    wanted = list(behind)
    unread: StoreError | None = None
    if any(queue >= layouts.known[-1].first for _, queue in wanted):
        (listed,) = yield [commands.layouts(context.keys)]
        if isinstance(listed, StoreError):
            unread = listed
        else:
            layouts.take(listed)
    nowhere = unread or StoreUnavailable(
        "the queues are closed, but Redis lists no newer layout; repeat the last `delayq reshard`"
    )
    found = (layouts.place(id, queue) for id, queue in wanted)
    return [nowhere if place is None else place for place in found]


def by_id(
    context: Context,
    ids: Iterable[str],
    ask: Callable[[QueueKeys, list[str]], Command[list[T]]],
    moved: Callable[[T], bool],
) -> Plan[dict[str, Any]]:
    """Ask for ids and return an answer or a StoreError for each."""
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
        answers = yield [ask(context.keys.queue(queue), chunk) for queue, chunk in chunks]
        behind = {}
        for (queue, chunk), answer in zip(chunks, answers, strict=True):
            if isinstance(answer, StoreError):
                results.update(dict.fromkeys(chunk, answer))
                continue
            results.update(zip(chunk, answer, strict=True))
            gone = [id for id, one in zip(chunk, answer, strict=True) if moved(one)]
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
    """Ask for ids that may omit the suffix of their ordering key, and return an answer or a StoreError for each.

    `ask` gets the complete ids, and the ids that the caller gave. An id that matches several messages finds none.
    """
    results = yield from by_id(context, ids, lambda keys, chunk: ask(keys, chunk, chunk), moved)
    lost = [
        id
        for id, answer in results.items()
        if not isinstance(answer, StoreError) and missing(answer) and not Layout.has_suffix(id)
    ]
    if not lost:
        return results
    try:
        complete = yield from _complete_ids(context, lost)
    except StoreError as error:  # the messages may exist
        return results | dict.fromkeys(lost, error)
    given = {one: id for id, one in complete.items()}
    again = yield from by_id(context, given, lambda keys, chunk: ask(keys, chunk, [given[one] for one in chunk]), moved)
    return results | {given[one]: answer for one, answer in again.items()}


def _complete_ids(context: Context, ids: Sequence[str]) -> Plan[dict[str, str]]:
    """The complete ids of those that match exactly one message; raises StoreError."""
    found: dict[str, set[str]] = {}
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        pages = yield from every_queue(context, partial(commands.asked, ids=chunk))
        for page in pages.values():
            for id, ones in zip(chunk, page, strict=True):
                found.setdefault(id, set()).update(ones)
    return {id: next(iter(ones)) for id, ones in found.items() if len(ones) == 1}


def every_queue(context: Context, ask: Callable[[QueueKeys], Command[T]]) -> Plan[dict[int, T]]:
    """Ask every queue of every layout and return the answers; raises StoreError.

    The list of layouts is read in the same round trip as the known queues, so that no message that existed before is missed.
    """
    layouts = context.layouts
    known = layouts.queues
    listed, *answers = all_good(
        (yield [commands.layouts(context.keys), *(ask(context.keys.queue(queue)) for queue in known)])
    )
    layouts.take(listed)
    found: dict[int, T] = dict(zip(known, answers, strict=True))
    new = [queue for queue in layouts.queues if queue not in found]
    if new:
        answers = all_good((yield [ask(context.keys.queue(queue)) for queue in new]))
        found.update(zip(new, answers, strict=True))
    return {queue: found[queue] for queue in layouts.queues}
