"""Plans that make, record and delete consumer groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from delayq.base.errors import DelayqError, InvalidMessage, OtherFilter, StoreError, StoreUnavailable
from delayq.base.times import Instant
from delayq.client.audit import By, entry_of
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.streams import TopicStreams, streams_of_topic
from delayq.client.looking.groups import known_groups
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_topic, given_instant
from delayq.domain.patterns import is_pattern
from delayq.store import commands
from delayq.store.commands import (
    MOST_GROUPS,
    MOST_GROUPS_OF_KEY,
    Command,
    FilterOfGroup,
    ReceivedEntries,
    UnknownGroup,
)
from delayq.store.connect.exchange import all_good, as_unknown
from delayq.store.keys import new_id

#: The most tags of a filter, and the most bytes of all of them: each group keeps its filter in Redis.
MOST_TAGS: Final = 100
MOST_TAGS_BYTES: Final = 4_096
_START: Final[Mapping[str, str]] = {"beginning": "0", "end": "$"}
_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: A call makes a group so often if it is deleted meanwhile, and deletes it so often if consumers make it again.
MOST_TRIES: Final = 5
_FULL: Final = {
    "full": f"there are {MOST_GROUPS:,} consumer groups, the maximum; delete one",
    "full of key": f"this API key has made {MOST_GROUPS_OF_KEY} consumer groups, the maximum of a key; delete one",
}


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group of a topic. `start` is where a new group begins: 'beginning', 'end' or Unix ms.

    `tags` are the filter of the group: only messages with one of these tags are received. Without tags all are.
    `reserved` are keys by which delayq counts the dead letters that this consumer makes.
    """

    topic: str
    group: str
    start: str | int = "beginning"
    tags: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    key: str = ""

    def check(self) -> None:
        """Raise InvalidMessage for a topic, group, start or tag that is not allowed."""
        if is_pattern(self.topic):
            raise InvalidMessage("topic", "must be one topic, because a call receives no pattern of topics: name it")
        check_topic(self.topic)
        check_group(self.group)
        if isinstance(self.start, str) and self.start not in _START:
            raise InvalidMessage("start", "is 'beginning', 'end' or a time")
        if any(not tag or "\0" in tag for tag in self.tags):
            raise InvalidMessage("tags", "no tag may be empty")
        if len(self.tags) > MOST_TAGS or sum(len(tag.encode(errors="replace")) for tag in self.tags) > MOST_TAGS_BYTES:
            raise InvalidMessage("tags", f"a filter has at most {MOST_TAGS} tags, of {MOST_TAGS_BYTES} bytes together")

    def leases_of(self, messages: Sequence[Leased]) -> list[str]:
        """The leases of messages that a call acknowledges before. Raises InvalidMessage for those of another group."""
        if any(one.topic != self.topic or one.group != self.group for one in messages):
            raise InvalidMessage("ack", "has a message of another topic or group; acknowledge it by its own call")
        return [one.lease for one in messages]

    @property
    def first(self) -> str:
        """The entry id after which a new group begins, or '$' for the end."""
        return _START[self.start] if isinstance(self.start, str) else f"{self.start - 1}-{2**64 - 1}"


def given_consumer(topic: str, group: str, start: str | Instant, tags: str | Sequence[str]) -> Consumer:
    """A consumer as a caller gives it: `start` may be a time, and `tags` may be 'paid || void', as in RocketMQ."""
    if isinstance(start, str) and start in _START:
        first: str | int = start
    else:
        first = given_instant("start", start) or 0
    if isinstance(tags, str):
        tags = () if tags in ("", "*") else [one.strip() for one in tags.split("||")]
    consumer = Consumer(topic=topic, group=group, start=first, tags=tuple(tags))
    consumer.check()
    return consumer


class GroupDeleted(msgspec.Struct, frozen=True):
    """The result of a deletion; `changed` is False if there was no such group."""

    topic: str
    group: str
    changed: bool


def check_group(group: str) -> None:
    """Raise InvalidMessage for a name that no group can have."""
    if not _GROUP.fullmatch(group):
        raise InvalidMessage("group", "has 1 to 64 characters of A-Z a-z 0-9 . _ -")


def failure_of(consumer: Consumer, stream: str, answer: Any) -> DelayqError | None:
    """The error of a stream; None if it has answered. Raises OtherFilter if the group has another filter there."""
    if isinstance(answer, FilterOfGroup):
        raise OtherFilter(consumer.group, answer.tags)
    if not isinstance(answer, StoreError) or not str(answer).startswith("WRONGTYPE"):
        return answer if isinstance(answer, StoreError) else None
    what = f"its messages are in {stream!r}, and this key in Redis is no stream; rename or delete the key"
    return InvalidMessage("topic", f"{consumer.topic!r} cannot be received: {what}")


def streams_of_group(context: Context, consumer: Consumer) -> Plan[TopicStreams]:
    """The streams of its topic, also in queues of former layouts. Makes the group if it has no record.

    A group that is in all streams may have no record, or a record that is not complete. So a client looks once a minute.
    """
    streams = yield from streams_of_topic(context, consumer.topic)
    field = streams.record(consumer.group).field
    if (queues := context.groups.queues(field)) is None:
        queues, making = all_good(
            (yield [commands.group_queues(context.keys, field), commands.group_making(context.keys, field)])
        )
        if queues is None or making.startswith("new"):
            queues = yield from make_group(consumer, streams)
        context.groups.keep(field, queues)
    return streams.and_older(*queues) if queues else streams


def make_group(consumer: Consumer, streams: TopicStreams) -> Plan[tuple[int, ...]]:
    """Make a group in all streams that do not have it. Returns the first and the last queue of its record.

    The ends of streams are read first, so that a slow call makes no group behind entries that the group has to receive. The
    record is written before and after the group is made, so a delete in between is noticed.
    Raises InvalidMessage, OtherFilter and StoreError.
    """
    group, tags, record = consumer.group, consumer.tags, streams.record(consumer.group)
    names = [*streams.by_place.values()]

    def ask(stream: str, start: str = "") -> Command[Any]:
        return commands.receive(
            streams.keys.consumers(stream, group), group, new_id(), 0, 1_000, start=start, tags=tags
        )

    def errors(asked: Iterable[str], answers: Iterable[Any]) -> list[DelayqError]:
        found = [failure_of(consumer, stream, answer) for stream, answer in zip(asked, answers, strict=True)]
        return [error for error in found if error is not None]

    for _ in range(MOST_TRIES):
        looked = yield [ask(stream) for stream in names]
        failed = errors(names, looked)
        if len(failed) == len(names):
            raise failed[0]
        known = any(isinstance(answer, ReceivedEntries) for answer in looked)
        (state,) = all_good(
            (yield [commands.record_group(streams.keys, record, new_id(), known=known, tags=tags, key=consumer.key)])
        )
        errors([""], [state])
        if state in _FULL:
            raise InvalidMessage("group", _FULL[state])
        first = "0" if state == "made" else consumer.first
        ends = {stream: one.end for stream, one in zip(names, looked, strict=True) if isinstance(one, UnknownGroup)}
        made = yield [ask(stream, end if first == "$" else first) for stream, end in ends.items()]
        failed += errors(ends, made)
        if failed and state == "new":
            raise failed[0]
        mark = commands.record_group(streams.keys, record, new_id(), after=True, tags=tags, key=consumer.key)
        state, queues = all_good((yield [mark, commands.group_queues(streams.keys, record.field)]))
        errors([""], [state])
        if state == "made" and queues is not None:
            return tuple(queues)
    raise StoreUnavailable(f"the group {group} is deleted again and again, while this call makes it; repeat the call")


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
        makings = all_good((yield [commands.group_making(context.keys, one.field) for one in records]))
        try:
            all_good(
                (
                    yield [
                        commands.destroy_group(context.keys.consumers(stream, group), group)
                        for stream in found[0].streams
                    ]
                )
            )
            (forgotten,) = all_good((yield [commands.forget_group(context.keys, records, makings, entry=entry)]))
        except StoreError as error:  # some streams may have lost the group
            raise as_unknown(error) from error
        if not forgotten.others:
            return GroupDeleted(topic, group, bool(forgotten.removed))
    raise StoreUnavailable(f"consumers of the group {group} make it again and again; stop them, and delete it again")
