"""A plan that finds the dead letters that consumer groups made of a delivered message."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.base.errors import StoreError
from delayq.client.plan import Context, Plan, by_id
from delayq.domain.message import GROUP_PROPERTY, State
from delayq.store import commands
from delayq.store.commands import MOVED, Command, Found
from delayq.store.keys import QueueKeys, dead_id

#: Dead letters that a reason names at most.
MOST: Final = 10


def with_dead_letters(context: Context, found: Found) -> Plan[Found]:
    """Add to a delivered message, as its reason, which consumer groups gave it up, and the ids of their dead letters."""
    (records,) = yield [commands.consumer_groups(context.keys)]
    if isinstance(records, StoreError):  # how the message ended is known: an error now must not hide it
        return found
    groups = {dead_id(found.id, one.group): one.group for one in records if found.topic in (None, one.topic)}

    def ask(keys: QueueKeys, ids: list[str]) -> Command[list[Found | None]]:
        return commands.get(keys, ids, retention=context.retention)

    letters = yield from by_id(context, groups, ask, lambda one: one is not None and one.state == MOVED)
    dead = [id for id in groups if _is_letter(letters[id], groups[id], found.topic)]
    if not dead:
        return found
    named = [f"the consumer group {groups[id]} gave it up: its dead letter is {id}" for id in dead[:MOST]]
    more = [f"{len(dead) - MOST} more groups gave it up"] if len(dead) > MOST else []
    return msgspec.structs.replace(found, reason="; ".join([*named, *more]))


def _is_letter(letter: Any, group: str, topic: str | None) -> bool:
    """Whether a group made this dead letter of a message of a topic. Somebody else's message may have such an id."""
    if not isinstance(letter, Found) or letter.state != State.DEAD or letter.record is None:
        return False
    made_by = letter.record.properties.get(GROUP_PROPERTY)
    return made_by == group and topic in (None, letter.record.topic)
