"""The answers about consumer groups."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from delayq.answers.times import Ms, Time, instant, ms, one_of
from delayq.base.times import format_instant, parse_instant
from delayq.client.consuming.groups import GroupDeleted
from delayq.client.looking.groups import ConsumerGroup, OldestMessage


class OldestOut(msgspec.Struct, rename="camel"):
    """The oldest message that a group has not acknowledged."""

    id: str
    due_time: Time
    due_ms: Ms
    delivered_time: Annotated[
        str,
        Meta(description="When it was added to the stream.", extra_json_schema={"format": "date-time"}),
    ]
    state: Annotated[str, Meta(extra_json_schema=one_of("waiting", "leased", "handedBack"))]

    def domain(self) -> OldestMessage:
        delivered = parse_instant(self.delivered_time)
        return OldestMessage(id=self.id, due=self.due_ms, delivered=delivered, state=self.state)


class GroupOut(msgspec.Struct, rename="camel"):
    """A consumer group of a topic, and how far it is. A number that is null is unknown, not zero."""

    topic: str
    group: str
    since: Annotated[str, Meta(description="When the group was made.", extra_json_schema={"format": "date-time"})]
    filter: Annotated[list[str], Meta(description="Only messages with one of these tags; empty: all.")]
    lag: Annotated[int | None, Meta(description="Messages that are not acknowledged: waiting, leased and handedBack.")]
    waiting: Annotated[int | None, Meta(description="Messages that the group has not received yet.")]
    leased: Annotated[int, Meta(description="Messages that were received and not acknowledged.")]
    handed_back: Annotated[int, Meta(description="Messages that were handed back and not received again.")]
    oldest: Annotated[OldestOut | None, Meta(description="null: all messages are acknowledged.")]
    ready_time: Annotated[
        str | None,
        Meta(
            description="Since when a message can be received; null: none can.",
            extra_json_schema={"format": "date-time"},
        ),
    ]
    last_receive_time: Annotated[
        str | None,
        Meta(
            description="When a consumer last received. Redis before 7.2 counts only calls that found something.",
            extra_json_schema={"format": "date-time"},
        ),
    ]

    def domain(self) -> ConsumerGroup:
        return ConsumerGroup(
            topic=self.topic,
            group=self.group,
            since=parse_instant(self.since),
            filter=tuple(self.filter),
            waiting=self.waiting,
            leased=self.leased,
            handed_back=self.handed_back,
            oldest=None if self.oldest is None else self.oldest.domain(),
            last_receive=ms(self.last_receive_time),
            ready=ms(self.ready_time),
        )


class GroupsOut(msgspec.Struct, rename="camel"):
    """A page of consumer groups by topic and name. `nextPageToken` is null on the last page."""

    groups: list[GroupOut]
    next_page_token: str | None
    total: Annotated[int, Meta(description="The number of matching groups on all pages.")]

    def domain(self) -> tuple[list[ConsumerGroup], str | None]:
        return [one.domain() for one in self.groups], self.next_page_token


class GroupDeletedOut(msgspec.Struct):
    """The result of a deletion."""

    topic: str
    group: str
    changed: Annotated[bool, Meta(description="Whether there was such a group.")]


def group_out(one: ConsumerGroup) -> GroupOut:
    """The group as JSON."""
    return GroupOut(
        one.topic,
        one.group,
        format_instant(one.since),
        list(one.filter),
        one.lag,
        one.waiting,
        one.leased,
        one.handed_back,
        _oldest_out(one.oldest) if one.oldest is not None else None,
        instant(one.ready),
        instant(one.last_receive),
    )


def _oldest_out(one: OldestMessage) -> OldestOut:
    return OldestOut(one.id, format_instant(one.due), one.due, format_instant(one.delivered), one.state)


def group_deleted_out(one: GroupDeleted) -> GroupDeletedOut:
    """The result as JSON."""
    return GroupDeletedOut(one.topic, one.group, one.changed)
