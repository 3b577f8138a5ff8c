"""Plans that make, record and delete consumer groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from delayq.base.errors import DelayqError, InvalidMessage, OtherFilter, StoreError, StoreUnavailable
from delayq.client.audit import By, entry_of
from delayq.client.looking.groups import known_groups
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_topic
from delayq.store import commands
from delayq.store.commands import (
    MOST_GROUPS,
    MOST_GROUPS_OF_KEY,
    Command,
    FilterOfGroup,
    GroupRecord,
    ReceivedEntries,
    UnknownGroup,
)
from delayq.store.connect.exchange import all_good, as_unknown
from delayq.store.keys import ConsumerKeys, new_id, queue_keys

_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: A call makes a group so often if it is deleted meanwhile, and deletes it so often if consumers make it again.
MOST_TRIES: Final = 5
_FULL: Final = {
    "full": f"there are {MOST_GROUPS:,} consumer groups, the maximum; delete one",
    "full of key": f"this API key has made {MOST_GROUPS_OF_KEY} consumer groups, the maximum of a key; delete one",
}


class NewGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group that is made if it does not exist.

    `first` is the entry id after which it begins, or '$' for the end. `tags` are its filter. `key` is the API key that makes it.
    """

    topic: str
    group: str
    first: str
    tags: tuple[str, ...] = ()
    key: str = ""


class GroupDeleted(msgspec.Struct, frozen=True):
    """The result of a deletion; `changed` is False if there was no such group."""

    topic: str
    group: str
    changed: bool


def check_group(group: str) -> None:
    """Raise InvalidMessage for a name that no group can have."""
    if not _GROUP.fullmatch(group):
        raise InvalidMessage("group", "has 1 to 64 characters of A-Z a-z 0-9 . _ -")


def record_of(topic: str, group: str, streams: Sequence[tuple[str, str]]) -> GroupRecord:
    """The record of a group of the streams of a topic, each with its place."""
    numbers = [int(place) for place, _ in streams if place]
    queues = (min(numbers), max(numbers)) if numbers else None
    return GroupRecord(topic=topic, group=group, stream=own_name(streams), queues=queues)


def field_of(topic: str, group: str, streams: Sequence[tuple[str, str]]) -> str:
    """The field of this record."""
    return f"{topic} {group} {own_name(streams)}"


def own_name(streams: Sequence[tuple[str, str]]) -> str:
    """The name of the streams, without the part that names a queue."""
    place, stream = streams[0]
    return stream.removeprefix(queue_keys(int(place)).stream("")) if place else stream


def no_stream(topic: str, stream: str, error: StoreError) -> InvalidMessage | None:
    """The refusal of a topic whose stream is a key of another type; None for another error."""
    if not str(error).startswith("WRONGTYPE"):
        return None
    what = f"its messages are in {stream!r}, and this key in Redis is no stream; rename or delete the key"
    return InvalidMessage("topic", f"{topic!r} cannot be received: {what}")


class Grouped(Protocol):
    """A consumer of a group, which may have to make it."""

    @property
    def topic(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def new_group(self) -> NewGroup: ...


def known_queues(context: Context, consumer: Grouped, streams: Sequence[tuple[str, str]]) -> Plan[tuple[int, ...]]:
    """The first and the last queue of a group, none for a single stream. Makes the group if it has no record.

    A group that is in all streams may have no record, or a record that is not complete. So a client looks once a minute.
    """
    field = field_of(consumer.topic, consumer.group, streams)
    if (queues := context.groups.queues(field)) is None:
        queues, making = all_good((yield [commands.group_queues(field), commands.group_making(field)]))
        if queues is None or making.startswith("new"):
            queues = yield from make_group(context, consumer.new_group, streams)
        context.groups.keep(field, queues)
    return queues


def make_group(context: Context, new: NewGroup, streams: Sequence[tuple[str, str]]) -> Plan[tuple[int, ...]]:
    """Make a group in all streams that do not have it. Returns the first and the last queue of its record.

    The ends of streams are read first, so that a slow call makes no group behind entries that the group has to receive. The
    record is written before and after the group is made, so a delete in between is noticed.
    Raises InvalidMessage, OtherFilter and StoreError.
    """
    record = record_of(new.topic, new.group, streams)

    def ask(stream: str, start: str = "") -> Command[Any]:
        keys = ConsumerKeys(stream, new.group)
        return commands.receive(keys, new.group, new_id(), 0, 1_000, start=start, tags=new.tags)

    def write(*, after: bool = False, known: bool = False) -> Plan[str]:
        mark = commands.record_group(record, new_id(), after=after, known=known, tags=new.tags, key=new.key)
        (answer,) = all_good((yield [mark]))
        if isinstance(answer, FilterOfGroup):
            raise OtherFilter(new.group, answer.tags)
        return str(answer)

    def errors(asked: Sequence[str], answers: Sequence[Any]) -> list[DelayqError]:
        found = list[DelayqError]()
        for stream, answer in zip(asked, answers, strict=True):
            if isinstance(answer, FilterOfGroup):
                raise OtherFilter(new.group, answer.tags)
            if isinstance(answer, StoreError):
                found.append(no_stream(new.topic, stream, answer) or answer)
        return found

    names = [stream for _, stream in streams]
    for _ in range(MOST_TRIES):
        looked = yield [ask(stream) for stream in names]
        failed = errors(names, looked)
        if len(failed) == len(names):
            raise failed[0]
        state = yield from write(known=any(isinstance(answer, ReceivedEntries) for answer in looked))
        if state in _FULL:
            raise InvalidMessage("group", _FULL[state])
        ends = {stream: one.end for stream, one in zip(names, looked, strict=True) if isinstance(one, UnknownGroup)}
        starts = {one: "0" if state == "made" else end if new.first == "$" else new.first for one, end in ends.items()}
        failed += errors(list(starts), (yield [ask(stream, start) for stream, start in starts.items()]))
        if failed and state == "new":
            raise failed[0]
        if (yield from write(after=True)) == "made":
            (queues,) = all_good((yield [commands.group_queues(record.field)]))
            if queues is not None:
                return tuple(queues)
    raise StoreUnavailable(
        f"the group {new.group} is deleted again and again, while this call makes it; repeat the call"
    )


def delete_group(context: Context, topic: str, group: str, by: By | None = None) -> Plan[GroupDeleted]:
    """Delete a consumer group with its leases. Its messages stay in their stream, for other groups.

    A repeated call changes nothing. A consumer that still receives makes a new group.
    """
    check_topic(topic)
    check_group(group)
    entry = entry_of(by, "deleteGroup", context.retention)
    for _ in range(MOST_TRIES):
        found = [one for one in (yield from known_groups(context)) if (one.topic, one.group) == (topic, group)]
        if not found:
            return GroupDeleted(topic, group, False)
        records = found[0].records
        makings = all_good((yield [commands.group_making(one.field) for one in records]))
        try:
            all_good(
                (yield [commands.destroy_group(ConsumerKeys(stream, group), group) for stream in found[0].streams])
            )
            (forgotten,) = all_good((yield [commands.forget_group(records, makings, entry=entry)]))
        except StoreError as error:  # some streams may have lost the group
            raise as_unknown(error) from error
        if not forgotten.others:
            return GroupDeleted(topic, group, bool(forgotten.removed))
    raise StoreUnavailable(f"consumers of the group {group} make it again and again; stop them, and delete it again")
