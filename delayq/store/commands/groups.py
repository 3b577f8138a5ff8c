"""The commands on consumer groups: record them, read how far they are, delete them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.base.times import LATEST
from delayq.store.commands.command import Command, Now, by_name, plain
from delayq.store.commands.consumers import CONSUMER, FilterOfGroup
from delayq.store.keys import ConsumerKeys, Keys

__all__ = [
    "MOST_GROUPS",
    "MOST_GROUPS_OF_KEY",
    "ForeignEntries",
    "Forgotten",
    "GroupLag",
    "GroupRecord",
    "OldestEntry",
    "Recorded",
    "consumer_groups",
    "destroy_group",
    "forget_group",
    "group_lags",
    "group_making",
    "group_queues",
    "record_group",
]

#: All records are read at once, so their number is bounded.
MOST_GROUPS: Final = 1_000
#: One API key makes at most so many of them, so that others can make groups, too.
MOST_GROUPS_OF_KEY: Final = 100
#: No record has more streams: somebody else has written it.
_MOST_STREAMS: Final = 2**18
_FIELD: Final = re.compile(r"([A-Za-z0-9._:-]{1,255}) ([A-Za-z0-9._-]{1,64}) ([^\ufffd]+)", re.DOTALL)
_FOREIGN: Final = re.compile(r"(\d{1,15}) (\d{1,15}) (\d+-\d+) (.*)", re.ASCII | re.DOTALL)
_VALUE: Final = re.compile(r"(\d{1,15})(?: (\d{1,9}) (\d{1,9}))?", re.ASCII)


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A consumer group of a topic, and the stream that it receives.

    `queues` are the first and the last queue that has a stream of its own; None for a single stream. `since` is when the
    group was recorded (Unix ms). `foreign` is the value of a record that delayq did not write, with unknown queues.
    """

    topic: str
    group: str
    stream: str
    queues: tuple[int, int] | None = None
    since: int = 0
    foreign: bytes | None = None

    @property
    def field(self) -> str:
        """The field of the record."""
        return f"{self.topic} {self.group} {self.stream}"

    def streams(self, keys: Keys) -> list[str]:
        """Return the keys of the streams."""
        if self.queues is None:
            return [self.stream]
        first, last = self.queues
        return [keys.queue(number).stream(self.stream) for number in range(first, last + 1)]

    @property
    def text(self) -> str | bytes:
        """The value of the record."""
        return self.foreign if self.foreign is not None else " ".join(map(str, (self.since, *(self.queues or ()))))


#: 'new': the group has to be made in all streams at its start. 'made': it begins at 0 in a stream that does not have it. 'gone':
#: somebody has deleted it meanwhile. 'full', 'full of key': there are too many groups, or too many of this API key.
Recorded = Literal["new", "made", "gone", "full", "full of key"]


def record_group(
    keys: Keys,
    record: GroupRecord,
    name: str = "",
    *,
    after: bool = False,
    known: bool = False,
    tags: Sequence[str] = (),
    key: str = "",
    most: int = MOST_GROUPS,
    most_of_key: int = MOST_GROUPS_OF_KEY,
    now: Now = "",
) -> Command[Recorded | FilterOfGroup]:
    """Record a group, or more queues of it, before and `after` it is made in its streams. A repeated call changes nothing.

    `name` is a new one for each call. `known`: some stream has the group already. `tags` are its filter, and `key` is the API
    key that makes it.
    """

    def read(reply: list[bytes]) -> Any:
        result = reply[0].decode()
        return FilterOfGroup(_tags(reply[1])) if result == "filter" else result

    first, last = record.queues or ("", "")
    marks = ("1" if after else "", "1" if known else "")
    args = (now, record.field, first, last, most, name, *marks, "\0".join(tags), key, most_of_key)
    return Command("record_group", (keys.groups, keys.makings), args, read)


def group_making(keys: Keys, field: str) -> Command[str]:
    """Read how far the group of a record is made, as `forget_group` compares it; '' for one of a former version."""
    return plain(
        "HGET", keys.makings, field, read=lambda reply: "" if reply is None else reply.decode(errors="replace")
    )


def group_queues(keys: Keys, field: str) -> Command[tuple[int, ...] | None]:
    """Read the first and the last queue of a record, none for a single stream; None if there is no record of delayq."""

    def read(reply: bytes | None) -> tuple[int, ...] | None:
        numbers = None if reply is None else _numbers(reply)
        return None if numbers is None else numbers[1:]

    return plain("HGET", keys.groups, field, read=read)


def consumer_groups(keys: Keys) -> Command[list[GroupRecord]]:
    """Read the records of all groups, by topic, group and stream. Fields that name no group are left out."""

    def read(reply: Any) -> list[GroupRecord]:
        found = []
        for field, value in by_name(reply).items():
            if (named := _FIELD.fullmatch(field)) is None:  # also the field that is written before a WAIT
                continue
            topic, group, stream = named.groups()
            numbers = _numbers(value)
            since, *queues = numbers or (0,)
            found.append(
                GroupRecord(
                    topic=topic,
                    group=group,
                    stream=stream,
                    queues=(queues[0], queues[1]) if queues else None,
                    since=since,
                    foreign=value if numbers is None else None,
                )
            )
        return sorted(found)

    return plain("HGETALL", keys.groups, read=read)


def _numbers(value: bytes) -> tuple[int, ...] | None:
    """The time of a record, and its first and last queue if it has queues; None if delayq did not write it."""
    if (read := _VALUE.fullmatch(value.decode(errors="replace"))) is None:
        return None
    since, *queues = (int(one) for one in read.groups() if one is not None)
    if since > LATEST or (queues and not 0 <= queues[1] - queues[0] < _MOST_STREAMS):
        return None
    return (since, *queues)


class Forgotten(msgspec.Struct, frozen=True):
    """How many records were removed, and how many others were found: a consumer has made the group again."""

    removed: int
    others: int


def forget_group(
    keys: Keys, records: Sequence[GroupRecord], makings: Sequence[str] = (), *, entry: str = ""
) -> Command[Forgotten]:
    """Remove the records of one group if they are as they were read, and write the `entry` into the audit."""
    named = f"{records[0].topic} {records[0].group}"
    whole = zip(records, makings or [""] * len(records), strict=True)
    each = [word for one, making in whole for word in (one.field, one.text, making)]
    return Command(
        "forget_group", (keys.groups, keys.makings, keys.audit), (entry, named, *each), lambda reply: Forgotten(*reply)
    )


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
        """The time at which it was added to the stream (Unix ms), and its number within this ms.

        Somebody may have chosen the id of an entry, and so a time after the year 9999.
        """
        ms, _, number = self.entry.partition("-")
        return min(int(ms), LATEST), int(number)


class ForeignEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a stream that delayq did not write. A group has skipped them: it has acknowledged them unread.

    `last`, `entry` and `reason` are those of the last one: when it was skipped (Unix ms), its id, and what is wrong with it.
    """

    stream: str
    count: int
    last: int
    entry: str
    reason: str


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
    foreign: ForeignEntries | None = None


def group_lags(keys: Keys, stream: str, groups: Sequence[str], *, now: Now = "") -> Command[list[GroupLag | None]]:
    """Read how far groups of one stream are; None if the stream has entries and no such group."""

    def number(text: Any) -> int | None:
        return None if text == b"" else min(int(text), LATEST)

    def lag(one: Any) -> GroupLag | None:
        if one == b"":
            return None
        waiting, pending, handed_back, tags, last, ready, oldest, foreign = one
        return GroupLag(
            waiting=number(waiting),
            pending=pending,
            handed_back=handed_back,
            filter=_tags(tags),
            last_receive=number(last),
            ready=number(ready),
            oldest=_oldest(*oldest) if oldest else None,
            foreign=_foreign(stream, foreign.decode(errors="replace")),
        )

    of_each = [keys.consumers(stream, group) for group in groups]
    names = [stream, *(key for one in of_each for key in (one.leases, one.consumers))]
    return Command("group_lags", names, (now, CONSUMER, *groups), lambda reply: [lag(one) for one in reply])


def _tags(text: bytes) -> tuple[str, ...]:
    return tuple(tag.decode(errors="replace") for tag in text.split(b"\0") if tag)


def _foreign(stream: str, text: str) -> ForeignEntries | None:
    if (read := _FOREIGN.fullmatch(text)) is None:
        return None
    count, last, entry, reason = read.groups()
    return ForeignEntries(stream=stream, count=int(count), last=int(last), entry=entry, reason=reason)


def _oldest(entry: bytes, id: bytes, due: bytes, state: bytes) -> OldestEntry:
    place = entry.decode()
    known = int(due) if due.isdigit() and len(due) <= len(str(LATEST)) else int(place.split("-")[0])
    return OldestEntry(place, id.decode(errors="replace"), min(known, LATEST), state.decode())
