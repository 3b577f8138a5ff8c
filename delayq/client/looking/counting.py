"""Plans that count messages and forecast how many fall due when.

A count is exact where the sizes of sorted sets give it, or where there are so few messages that each one is read. Otherwise
the last census of each queue answers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.known_policies import indexes_topic
from delayq.client.looking.messages import count
from delayq.client.looking.search import check_filter, has_topic
from delayq.client.looking.traffic import slots_of, was_busy
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.message import MAX_DUE, State, tag_key, topic_key
from delayq.domain.nodes import RECENT_STEP, read_nodes
from delayq.domain.patterns import is_pattern
from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import DEAD, QUEUE, QUEUE_STATES, REST, Census, Filter, QueueStats, Tally
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys

MOST_BUCKETS: Final = 500
#: Up to this many messages in all queues are counted one by one, because a census may be minutes old.
LIVE: Final = 10_000
#: Messages that one script reads: it takes about 1 ms, so that other commands do not wait for long.
LOOK: Final = 200


class Counted(msgspec.Struct, frozen=True):
    """A number of messages, or None if it is unknown. If it is not exact, `as_of` (Unix ms) is the time of the census.

    None with `as_of` means that this census has no such number. It did not count the topic by name, or the due times
    are earlier than the census and messages were already due. None without `as_of` means that no census was taken yet.
    """

    messages: int | None
    exact: bool
    as_of: int | None = None


class Forecast(msgspec.Struct, frozen=True):
    """The numbers of messages that fall due between each edge and the next one, or None if they are unknown.

    If they are not exact, `as_of` (Unix ms) is the time of the census (see `Counted`). Messages that were due at that
    time are not included. `drain_rate` is the number of messages per second in the best 10 s of the last ten minutes.
    It is None if no worker reports it. `capacity` is the same rate if messages had to wait for each other during 10 s.
    Otherwise it is None: the workers delivered everything in time, so their limit is unknown.
    """

    edges: list[int]
    messages: list[int] | None
    exact: bool
    as_of: int | None
    drain_rate: float | None
    capacity: float | None = None


def check_forecast(begin: int, end: int, step: int) -> None:
    """Raise InvalidMessage for the first argument that is invalid."""
    for field, due in (("dueFrom", begin), ("dueTo", end)):
        if not 0 <= due <= MAX_DUE:
            raise InvalidMessage(field, "is out of the range of due times")
    if end <= begin:
        raise InvalidMessage("dueTo", "must be later than dueFrom")
    if step < 1:
        raise InvalidMessage("step", "must be at least a millisecond")
    if end - begin > step * MOST_BUCKETS:
        raise InvalidMessage("step", f"makes more than {MOST_BUCKETS} buckets; use a longer step")


def count_messages(context: Context, wanted: Filter) -> Plan[Counted]:
    """Count the messages that match a filter of topics, states and due times, or of tags that a policy indexes.

    Raises InvalidMessage for any other filter, and StoreError.
    """
    check_filter(wanted)
    for field, given in (("property", wanted.property), ("idPrefix", wanted.id_prefix), ("key", wanted.key)):
        if given not in (None, ""):
            raise InvalidMessage(field, "cannot be counted; search for it")
    queues = yield from every_queue(context, commands.stats)
    indexed = yield from _by_index(context, wanted, queues)
    live = wanted.among is None and _are_few(queues)
    if indexed is not None and (indexed.exact or not live):
        return indexed
    if wanted.tags and indexed is None:
        raise InvalidMessage("tags", "are counted for one topic, if its policy has an index of tags; search for them")
    some = {state in wanted.states for state in QUEUE_STATES}
    timed = wanted.due_from is not None or wanted.due_to is not None
    by_topic = wanted.topic or wanted.among is not None or (wanted.states and len(some) > 1)
    if not by_topic and not timed and _together(wanted, queues):
        return Counted(sum(_all(wanted, stats) for stats in queues.values()), exact=True)
    if live:
        if timed or wanted.tags or not _together(wanted, queues):
            return Counted(len((yield from _dues_now(context.keys, wanted, queues))), exact=True)
        return Counted(_sum(wanted, (yield from _taken_now(context.keys, queues))), exact=True)
    if by_topic:
        return (yield from _by_census(context.keys, wanted, queues))
    return (yield from _by_dues(context.keys, wanted, queues))


def _are_few(queues: Mapping[int, QueueStats]) -> bool:
    """Whether there are so few messages that each one may be counted.

    Use it only for callers who may see all topics, because the answer reveals how many messages there are.
    """
    return sum(stats.pool for stats in queues.values()) <= LIVE


def _taken_now(keys: Keys, queues: Mapping[int, QueueStats]) -> Plan[list[Census]]:
    """Take a census of each queue that has messages."""
    taken = {queue: Census(0, {}) for queue, stats in queues.items() if stats.pool}
    cursors = dict.fromkeys(taken, "0")
    while cursors:
        asked = [
            commands.census_slice(keys.queue(queue), cursor, LOOK, taken[queue].began or None)
            for queue, cursor in cursors.items()
        ]
        slices = all_good((yield asked))
        for queue, one in zip(list(cursors), slices, strict=True):
            counted = taken[queue] = Census(taken[queue].began or one.now, taken[queue].topics)
            for topic, state, *counts in one.groups:
                counted.topics.setdefault(topic, {}).setdefault(state, Tally()).add(*counts)
            cursors[queue] = one.cursor
        cursors = {queue: cursor for queue, cursor in cursors.items() if cursor != "0"}
    return list(taken.values())


def _sum(wanted: Filter, taken: Iterable[Census]) -> int:
    return sum(
        tally.messages
        for one in taken
        for topic, states in one.topics.items()
        if has_topic(wanted, topic)
        for state, tally in states.items()
        if wanted.wants(state)
    )


def _dues_now(keys: Keys, wanted: Filter, queues: Mapping[int, QueueStats]) -> Plan[list[int]]:
    """Read the due time of each message that matches; the time of death of a dead letter."""
    behind: dict[tuple[int, str], tuple[int, bytes] | None] = {
        (queue, place): None
        for queue, stats in queues.items()
        for place, wants in (
            (QUEUE, bool(stats.scheduled) and wanted.wants(*QUEUE_STATES)),
            (DEAD, bool(stats.dead) and wanted.wants(State.DEAD)),
            *((name, wanted.wants(commands.aside(name))) for name in stats.parked_sets),
        )
        if wants
    }
    found: list[int] = []
    while behind:
        asked = [
            commands.page(keys.queue(queue), place, wanted, after=after, look=LOOK, only_sizes=True)
            for (queue, place), after in behind.items()
        ]
        pages = all_good((yield asked))
        found += (due for page in pages for due, _ in page.places)
        behind = {place: page.after for place, page in zip(behind, pages, strict=True) if page.after is not None}
    return found


def _by_index(context: Context, wanted: Filter, queues: dict[int, QueueStats]) -> Plan[Counted | None]:
    """Count by the index of reserved keys; None if no index fits the filter, or if messages of the topic may be missing.

    The index is complete if the last census found every message in it and the policies have not changed since.
    """
    topic = wanted.topic
    timed = wanted.due_from is not None or wanted.due_to is not None
    if not topic or is_pattern(topic) or timed or wanted.states or not has_topic(wanted, topic):
        return None
    (fields,) = all_good((yield [commands.policies(context.keys)]))
    policies = Policies.read(fields)
    policy = policies.policy(topic)
    if policy is None or not ("tags" in policy.index if wanted.tags else indexes_topic(policy)):
        return None
    found = (yield from _censuses(context.keys, queues, wanted.topic)) or []
    whole = len(found) == sum(stats.pool > 0 for stats in queues.values()) and all(
        one.version == policies.version
        and not any(
            tally.untagged if wanted.tags else tally.unindexed
            for name in (topic, REST)
            for tally in one.topics.get(name, {}).values()
        )
        for one in found
    )
    if not whole and not wanted.tags:
        return None
    key = tag_key(topic, wanted.tags) if wanted.tags else topic_key(topic)
    messages = yield from count(context, key)
    return Counted(messages, exact=whole, as_of=None if whole else max(stats.now for stats in queues.values()))


def _together(wanted: Filter, queues: dict[int, QueueStats]) -> bool:
    """Whether parked and held messages need not be counted apart: only their sum is known exactly."""
    held = any(stats.held_topics for stats in queues.values())
    return not held or wanted.wants(State.PARKED) == wanted.wants(State.HELD)


def _all(wanted: Filter, stats: QueueStats) -> int:
    queue = stats.scheduled if wanted.wants(*QUEUE_STATES) else 0
    return queue + (stats.parked if wanted.wants(State.PARKED) else 0) + (stats.dead if wanted.wants(State.DEAD) else 0)


def _by_dues(keys: Keys, wanted: Filter, queues: dict[int, QueueStats]) -> Plan[Counted]:
    """Count by the scores of sorted sets. Parked sets still have tickets of cancelled messages, so their counts are not exact."""
    edges = (wanted.due_from, wanted.due_to)
    asked = [
        (place, commands.counts(keys.queue(queue), place, edges))
        for queue, stats in queues.items()
        for place, wants in (
            (QUEUE, wanted.wants(*QUEUE_STATES)),
            (DEAD, wanted.wants(State.DEAD)),
            *((name, wanted.wants(commands.aside(name))) for name in stats.parked_sets),
        )
        if wants
    ]
    found = all_good((yield [command for _, command in asked])) if asked else []
    parked = sum(one for (place, _), (one,) in zip(asked, found, strict=True) if place not in (QUEUE, DEAD))
    now = max(stats.now for stats in queues.values())
    return Counted(sum(one for (one,) in found), exact=not parked, as_of=now if parked else None)


def _by_census(keys: Keys, wanted: Filter, queues: dict[int, QueueStats]) -> Plan[Counted]:
    found = yield from _censuses(keys, queues, wanted.topic)
    if found is None:
        return Counted(None, exact=False)
    begin, end = wanted.due_from or 0, wanted.due_to or 2 * MAX_DUE
    total = _total(_tallies(wanted, found), begin, end)
    exact, as_of = _certainty(wanted, queues, found)
    return Counted(None if total is None else round(total), exact=exact, as_of=as_of)


def _certainty(wanted: Filter, queues: Mapping[int, QueueStats], found: Sequence[Census]) -> tuple[bool, int | None]:
    """Whether a number of a census is exact, and the time of the census.

    It is exact if there are no messages at all. A key that may read only some topics does not learn that.
    """
    if found or wanted.among is not None:
        return False, min((one.began for one in found), default=max(stats.now for stats in queues.values()))
    return True, None


def taken_now_or_before(
    keys: Keys, queues: Mapping[int, QueueStats], topic: str = "", *, live: bool = True
) -> Plan[list[Census] | None]:
    """The census of each queue that has messages, or of one topic of it. With `live`, a small number of messages is counted now.

    None if a queue has no census yet.
    """
    return (yield from _taken_now(keys, queues) if live and _are_few(queues) else _censuses(keys, queues, topic))


def _censuses(keys: Keys, queues: Mapping[int, QueueStats], topic: str = "") -> Plan[list[Census] | None]:
    """The last census of each queue that has messages, or of one topic of it; None if a queue has no census yet."""
    if is_pattern(topic):
        topic = ""
    asked = [commands.census(keys.queue(queue), topic) for queue, stats in queues.items() if stats.pool]
    found = all_good((yield asked)) if asked else []
    return None if None in found else found


class _Counted(NamedTuple):
    """Yield the numbers of a census, and whether all messages of a number match the filter or only some may."""

    began: int
    tally: Tally
    whole: bool


def _tallies(wanted: Filter, found: Sequence[Census]) -> Iterator[_Counted]:
    everything = wanted.among is None and not wanted.topic.strip("*")
    for one in found:
        for topic, states in one.topics.items():
            whole = everything or (topic != REST and has_topic(wanted, topic))
            if whole or (topic == REST and _may_be_beyond(wanted, one)):
                yield from (_Counted(one.began, tally, whole) for state, tally in states.items() if wanted.wants(state))


def _may_be_beyond(wanted: Filter, counted: Census) -> bool:
    """Whether a topic of the filter may be one that the census did not count by name."""
    names = (wanted.topic,) if wanted.topic else wanted.among or ()
    return any(is_pattern(one) or one not in counted.topics for one in names)


def _total(tallies: Iterable[_Counted], begin: int, end: int) -> float | None:
    """The number of messages due at or after `begin` and before `end`; None if it is unknown."""
    total = 0.0
    for one in tallies:
        share = _share(one.began, one.tally, begin, end)
        if share is None or (share and not one.whole):
            return None
        total += share
    return total


def _share(began: int, tally: Tally, begin: int, end: int) -> float | None:
    """The part of a number that is due at or after `begin` and before `end`, if each bucket is spread evenly.

    A census does not record since when messages have been due. They count only where no beginning is asked for.
    """
    share = 0.0
    if begin < began and any(tally.dues[:1]):
        if begin or end <= began:
            return None
        share = float(tally.dues[0])
    for (first, last), messages in zip(commands.bucket_edges(began), tally.dues[1:], strict=False):
        share += messages * max(0, min(end, last) - max(begin, first)) / (last - first)
    return share


def forecast(context: Context, begin: int, end: int, step: int, wanted: Filter) -> Plan[Forecast]:
    """Count the messages of the filter's topics that fall due in each step; raises InvalidMessage and StoreError."""
    check_filter(wanted)
    check_forecast(begin, end, step)
    edges = [*range(begin, end, step), end]
    rate, capacity = yield from _rates(context.keys)
    if not wanted.topic and wanted.among is None:
        asked = partial(commands.counts, place=QUEUE, edges=edges)
        counts = yield from every_queue(context, asked)
        return Forecast(edges, [sum(some) for some in zip(*counts.values(), strict=True)], True, None, rate, capacity)
    only = msgspec.structs.replace(wanted, states=QUEUE_STATES)
    queues = yield from every_queue(context, partial(commands.stats, most_held=0))
    if wanted.among is None and _are_few(queues):
        dues = yield from _dues_now(context.keys, msgspec.structs.replace(only, due_from=begin, due_to=end), queues)
        places = Counter(bisect_right(edges, due) - 1 for due in dues)
        return Forecast(edges, [places[place] for place in range(len(edges) - 1)], True, None, rate, capacity)
    found = yield from _censuses(context.keys, queues, only.topic)
    if found is None:
        return Forecast(edges, None, False, None, rate, capacity)
    tallies = [one._replace(tally=_still_to_come(one.tally)) for one in _tallies(only, found)]
    exact, as_of = _certainty(wanted, queues, found)
    parts = [_total(tallies, first, last) for first, last in pairwise(edges)]
    known = [one for one in parts if one is not None]
    return Forecast(edges, _rounded(known) if len(known) == len(parts) else None, exact, as_of, rate, capacity)


def _still_to_come(tally: Tally) -> Tally:
    """The numbers without messages that were due when the census began."""
    return msgspec.structs.replace(tally, dues=[0, *tally.dues[1:]])


def _rounded(parts: Sequence[float]) -> list[int]:
    """Round to whole numbers with about the same sum."""
    found, total, before = [], 0.0, 0
    for part in parts:
        total += part
        found.append(round(total) - before)
        before = round(total)
    return found


def _rates(keys: Keys) -> Plan[tuple[float | None, float | None]]:
    """The rate of the best 10 s of the last ten minutes, and the same rate if it shows the workers' limit, else None."""
    lines, now = all_good((yield [commands.nodes(keys), commands.redis_now()]))
    slots = slots_of(read_nodes(lines, now).values(), now).values()
    rate = max((sum(one.counts) * 1_000 / RECENT_STEP for one in slots), default=None)
    return rate, rate if any(map(was_busy, slots)) else None
