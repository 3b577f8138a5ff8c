"""Plans that read consumer groups: which are recorded, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from delayq.base.errors import StoreError
from delayq.client.plan import Context, Plan
from delayq.domain.patterns import check_pattern, compiled
from delayq.store import commands
from delayq.store.commands import ForeignEntries, GroupLag, GroupRecord, OldestEntry
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys

#: A status or a scrape reads at most so many streams, counted once for each group.
MOST_READ: Final = 1_000
#: Redis executes a packet without a break, so one packet reads so many streams.
STREAMS_AT_ONCE: Final = 50


class OldestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest message that a group has not acknowledged.

    `due` is its due time, and `delivered` is when it was added to the stream (Unix ms). `state` is 'waiting', 'leased' or
    'handedBack'.
    """

    id: str
    due: int
    delivered: int
    state: str


class ConsumerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group of a topic, and how far it is.

    `filter` has its tags; none lets everything pass. `waiting` messages were not received yet; None means unknown. `leased`
    messages were received, and `handed_back` ones wait for their next delivery. `last_receive` is when a consumer received,
    `ready` is since when a message can be received, and `since` is when the group was recorded (Unix ms). `foreign` are entries
    that delayq did not write, of the stream where the last one was found.
    """

    topic: str
    group: str
    since: int
    filter: tuple[str, ...] = ()
    waiting: int | None = None
    leased: int = 0
    handed_back: int = 0
    oldest: OldestMessage | None = None
    last_receive: int | None = None
    ready: int | None = None
    foreign: ForeignEntries | None = None

    @property
    def lag(self) -> int | None:
        """The number of messages that the group has not acknowledged; None means unknown."""
        return None if self.waiting is None else self.waiting + self.leased + self.handed_back


class KnownGroup(msgspec.Struct, frozen=True):
    """A recorded group, and the keys of all its streams. It has several records if the route of its topic has changed."""

    topic: str
    group: str
    records: tuple[GroupRecord, ...]
    streams: list[str]


def sorted_groups(keys: Keys, records: Iterable[GroupRecord]) -> list[KnownGroup]:
    """The groups of records, by topic and group."""
    found: dict[tuple[str, str], list[GroupRecord]] = {}
    for one in records:
        found.setdefault((one.topic, one.group), []).append(one)
    return [
        KnownGroup(topic, group, tuple(some), [stream for one in some for stream in one.streams(keys)])
        for (topic, group), some in sorted(found.items())
    ]


def known_groups(context: Context, match: str = "*") -> Plan[list[KnownGroup]]:
    """Read which groups of the topics that a pattern covers are recorded, by topic and group."""
    fits = compiled(check_pattern(match)).match
    (records,) = all_good((yield [commands.consumer_groups(context.keys)]))
    return sorted_groups(context.keys, (one for one in records if fits(one.topic)))


def lags(keys: Keys, groups: Sequence[KnownGroup]) -> Plan[list[ConsumerGroup | StoreError]]:
    """Read how far groups are; a StoreError in the place of one that could not be read."""
    by_stream: dict[str, list[int]] = {}
    for at, one in enumerate(groups):
        for stream in one.streams:
            by_stream.setdefault(stream, []).append(at)
    answers: list[list[GroupLag | StoreError | None]] = [[] for _ in groups]
    wanted = list(by_stream.items())
    for begin in range(0, len(wanted), STREAMS_AT_ONCE):
        some = wanted[begin : begin + STREAMS_AT_ONCE]
        found = yield [
            commands.group_lags(keys, stream, [groups[at].group for at in places]) for stream, places in some
        ]
        for (_, places), answer in zip(some, found, strict=True):
            for n, at in enumerate(places):
                answers[at].append(answer if isinstance(answer, StoreError) else answer[n])
    return [_together(one, some) for one, some in zip(groups, answers, strict=True)]


def _together(group: KnownGroup, answers: Sequence[Any]) -> ConsumerGroup | StoreError:
    """A group of several streams. Its number of waiting messages is unknown if that of one stream is."""
    for one in answers:
        if isinstance(one, StoreError) and not str(one).startswith("WRONGTYPE"):  # else the key is no stream any longer
            return one
    found: list[GroupLag] = [one for one in answers if isinstance(one, GroupLag)]
    waiting = [one.waiting for one in found]
    known = [number for number in waiting if number is not None]
    handed_back = sum(one.handed_back for one in found)
    oldest = min((one.oldest for one in found if one.oldest is not None), key=lambda one: one.place, default=None)
    return ConsumerGroup(
        topic=group.topic,
        group=group.group,
        since=min(one.since for one in group.records),
        filter=next((one.filter for one in found if one.filter), ()),
        waiting=sum(known) if len(known) == len(answers) else None,
        leased=sum(one.pending for one in found) - handed_back,
        handed_back=handed_back,
        oldest=_message_of(oldest) if oldest is not None else None,
        last_receive=max((one.last_receive for one in found if one.last_receive is not None), default=None),
        ready=min((one.ready for one in found if one.ready is not None), default=None),
        foreign=max((one.foreign for one in found if one.foreign), key=lambda one: one.last, default=None),
    )


def _message_of(one: OldestEntry) -> OldestMessage:
    return OldestMessage(id=one.id, due=one.due, delivered=one.place[0], state=one.state)


def some_lags(keys: Keys, groups: Sequence[KnownGroup]) -> Plan[list[ConsumerGroup]]:
    """Read how far the first groups are, with `MOST_READ` streams in all. Groups that cannot be read are left out."""
    read, left = list[KnownGroup](), MOST_READ
    for one in groups:
        left -= len(one.streams)
        if left < 0:
            break
        read.append(one)
    found = (yield from lags(keys, read)) if read else []
    return [one for one in found if isinstance(one, ConsumerGroup)]


def largest_lags(context: Context) -> Plan[tuple[int | None, int | None]]:
    """Read the largest known lag of a group, and the age of the oldest message that a group has not acknowledged (ms).

    Both are None if there is no group.
    """
    records, now = all_good((yield [commands.consumer_groups(context.keys), commands.redis_now()]))
    groups = yield from some_lags(context.keys, sorted_groups(context.keys, records))
    ages = [0 if one.oldest is None else max(0, now - one.oldest.delivered) for one in groups]
    return max((one.lag for one in groups if one.lag is not None), default=None), max(ages, default=None)


def consumers(context: Context, match: str = "*") -> Plan[list[ConsumerGroup]]:
    """Read the consumer groups of the topics that a pattern covers, by topic and group. Raises StoreError."""
    groups = yield from known_groups(context, match)
    return all_good((yield from lags(context.keys, groups)))
