"""The commands on consumer groups: record them, read how far they are, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Command, Now, by_name, plain
from delayq.store.commands.consumers import CONSUMER
from delayq.store.keys import AUDIT, GROUPS, ConsumerKeys, queue_keys

__all__ = [
    "MOST_GROUPS",
    "GroupLag",
    "GroupRecord",
    "OldestEntry",
    "consumer_groups",
    "destroy_group",
    "forget_group",
    "group_lags",
    "record_group",
]

#: All records are read at once, so their number is bounded.
MOST_GROUPS: Final = 1_000


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A consumer group of a topic, and the stream that it receives.

    `queues` are the first and the last queue that has a stream of its own; None for a single stream. `since` is when the
    group was recorded (Unix ms).
    """

    topic: str
    group: str
    stream: str
    queues: tuple[int, int] | None = None
    since: int = 0

    @property
    def field(self) -> str:
        """The field of the record."""
        return f"{self.topic} {self.group} {self.stream}"

    @property
    def streams(self) -> list[str]:
        """The keys of the streams."""
        if self.queues is None:
            return [self.stream]
        first, last = self.queues
        return [queue_keys(number).stream(self.stream) for number in range(first, last + 1)]


def record_group(record: GroupRecord, *, most: int = MOST_GROUPS, now: Now = "") -> Command[bool]:
    """Record a group, or more queues of it. Returns False if there are too many groups. A repeated call changes nothing."""
    first, last = record.queues or ("", "")
    return Command("record_group", (GROUPS,), (now, record.field, first, last, most), lambda reply: reply == b"ok")


def consumer_groups() -> Command[list[GroupRecord]]:
    """Read the records of all groups, by topic, group and stream."""

    def read(reply: Any) -> list[GroupRecord]:
        found = []
        for field, value in by_name(reply).items():
            if field == "barrier":  # written before a WAIT
                continue
            topic, group, stream = field.split(" ", 2)
            since, *queues = map(int, value.split())
            numbers = (queues[0], queues[1]) if queues else None
            found.append(GroupRecord(topic=topic, group=group, stream=stream, queues=numbers, since=since))
        return sorted(found)

    return plain("HGETALL", GROUPS, read=read)


def forget_group(records: Sequence[GroupRecord], *, entry: str = "") -> Command[bool]:
    """Remove the records of one group, and write the `entry` into the audit. Returns whether there was a record."""
    named = f"{records[0].topic} {records[0].group}"
    fields = [one.field for one in records]
    return Command("forget_group", (GROUPS, AUDIT), (entry, named, *fields), bool)


def destroy_group(keys: ConsumerKeys, group: str) -> Command[bool]:
    """Delete a group of one stream with its leases. Returns whether the stream had it."""
    return Command("destroy_group", (keys.consumers, keys.stream, keys.leases), (group,), bool)


class OldestEntry(msgspec.Struct, frozen=True):
    """The oldest entry that a group has not acknowledged, the id and the due time of its message.

    `state` is 'waiting', 'leased' or 'handedBack'.
    """

    entry: str
    id: str
    due: int
    state: str

    @property
    def place(self) -> tuple[int, int]:
        """The time at which it was added to the stream (Unix ms), and its number within this ms."""
        ms, _, number = self.entry.partition("-")
        return int(ms), int(number)


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group of one stream is.

    `waiting` entries were not received yet; None if their number is unknown. `pending` ones were received and not
    acknowledged, and `handed_back` counts those of them that were handed back. `filter` has the tags of the group. `last_receive`
    is when a call received, None if none did. `ready` is since when a message can be received, None if none can (Unix ms).
    """

    waiting: int | None
    pending: int
    handed_back: int
    filter: tuple[str, ...]
    last_receive: int | None
    ready: int | None
    oldest: OldestEntry | None


def group_lags(stream: str, groups: Sequence[str], *, now: Now = "") -> Command[list[GroupLag | None]]:
    """Read how far groups of one stream are; None if the stream has entries and no such group."""

    def number(text: Any) -> int | None:
        return None if text == b"" else int(text)

    def lag(one: Any) -> GroupLag | None:
        if one == b"":
            return None
        waiting, pending, handed_back, tags, last, ready, oldest = one
        return GroupLag(
            waiting=number(waiting),
            pending=pending,
            handed_back=handed_back,
            filter=tuple(tag.decode() for tag in tags.split(b"\0") if tag),
            last_receive=number(last),
            ready=number(ready),
            oldest=_oldest(*oldest) if oldest else None,
        )

    of_each = [ConsumerKeys(stream, group) for group in groups]
    keys = [stream, *(key for one in of_each for key in (one.leases, one.consumers))]
    return Command("group_lags", keys, (now, CONSUMER, *groups), lambda reply: [lag(one) for one in reply])


def _oldest(entry: bytes, id: bytes, due: bytes, state: bytes) -> OldestEntry:
    place = entry.decode()
    return OldestEntry(
        place, id.decode(errors="replace"), int(due) if due.isdigit() else int(place.split("-")[0]), state.decode()
    )
