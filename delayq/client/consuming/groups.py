"""Plans that record and delete consumer groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.client.audit import By, entry_of
from delayq.client.looking.groups import known_groups
from delayq.client.plan import Context, Plan
from delayq.errors import InvalidMessage, StoreError
from delayq.message import check_topic
from delayq.store import commands
from delayq.store.commands import GroupRecord
from delayq.store.connect.exchange import all_good, as_unknown
from delayq.store.keys import ConsumerKeys, queue_keys

__all__ = ["GroupDeleted", "check_group", "delete_group", "record_of"]

_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


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
    place, stream = streams[0]
    own = stream.removeprefix(queue_keys(int(place)).stream("")) if place else stream
    queues = (min(numbers), max(numbers)) if numbers else None
    return GroupRecord(topic=topic, group=group, stream=own, queues=queues)


def delete_group(context: Context, topic: str, group: str, by: By | None = None) -> Plan[GroupDeleted]:
    """Delete a consumer group with its leases. Its messages stay in their stream, for other groups.

    A repeated call changes nothing. A consumer that still receives makes a new group.
    """
    check_topic(topic)
    check_group(group)
    entry = entry_of(by, "deleteGroup", context.retention)
    found = [one for one in (yield from known_groups(context)) if (one.topic, one.group) == (topic, group)]
    if not found:
        return GroupDeleted(topic, group, False)
    try:
        all_good((yield [commands.destroy_group(ConsumerKeys(stream, group), group) for stream in found[0].streams]))
        (changed,) = all_good((yield [commands.forget_group(found[0].records, entry=entry)]))
    except StoreError as error:  # some streams may have lost the group
        raise as_unknown(error) from error
    return GroupDeleted(topic, group, changed)
