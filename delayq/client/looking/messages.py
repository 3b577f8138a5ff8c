"""Plans that read single messages, by id or by business key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.base.errors import StoreError
from delayq.client.looking.explain import explain_parked
from delayq.client.looking.given_up import with_dead_letters
from delayq.client.plan import Context, Plan, by_asked_id, by_id, every_queue
from delayq.domain.codec import CorruptRecord
from delayq.domain.message import MAX_DUE, State, check_id, check_key
from delayq.store import commands
from delayq.store.commands import MOVED, Command, Found
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys, QueueKeys

#: Messages of a queue that `find` returns at most.
FIND_LIMIT: Final = 1_000
#: Messages that are read at once to learn their topics.
READ_STEP: Final = 25


def look_in_steps(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """Read the state of each message, a few at a time because bodies may be large."""
    found: dict[str, Found | StoreError | None] = {}
    for start in range(0, len(ids), READ_STEP):
        found |= yield from look(context, ids[start : start + READ_STEP])
    return found


def topic_of(found: Found | StoreError | None) -> str | None:
    """The topic of a message, or None if it does not exist, cannot be read, or has ended."""
    if not isinstance(found, Found) or found.record is None:
        return None
    try:
        return found.record.topic
    except CorruptRecord:
        return None


def get(context: Context, ids: Sequence[str]) -> Plan[list[Found | None]]:
    """Read the states of messages, in order; of a single delivered one also which consumer groups gave it up.

    Raises StoreError.
    """
    for id in ids:
        check_id(id)
    results = yield from look(context, ids)
    found = yield from mark_held(context.keys, all_good([results[id] for id in ids]))
    parked = yield from explain_parked(context.keys, found)
    explained = [parked.get(one.id, one) if one is not None else None for one in found]
    if len(explained) == 1 and explained[0] is not None and explained[0].state == State.DELIVERED:
        explained = [(yield from with_dead_letters(context, explained[0]))]
    return explained


def mark_held(keys: Keys, found: list[Found | None]) -> Plan[list[Found | None]]:
    """Change the state of parked messages to held if a pause or a limit of their topic parked them."""
    parked = [one for one in found if one is not None and one.state == State.PARKED and one.record is not None]
    if not parked:
        return found
    asked = [
        commands.is_held(keys.queue(one.queue), one.record.topic, one.id, one.record.generation)
        for one in parked
        if one.record is not None
    ]
    held = {one.id for one, yes in zip(parked, all_good((yield asked)), strict=True) if yes}
    return [
        msgspec.structs.replace(one, state=State.HELD) if one is not None and one.id in held else one for one in found
    ]


def look(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """Read the state of each message by id. An id may omit the suffix of its ordering key."""

    def ask(keys: QueueKeys, chunk: list[str], _given: list[str]) -> Command[list[Found | None]]:
        return commands.get(keys, chunk, retention=context.retention)

    found: dict[str, Found | StoreError | None] = yield from by_asked_id(
        context, ids, ask, _is_elsewhere, lambda one: one is None
    )
    return found


def look_by_complete_id(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """Read the state of each message by its complete id; an unknown id costs no second round trip."""

    def ask(keys: QueueKeys, chunk: list[str]) -> Command[list[Found | None]]:
        return commands.get(keys, chunk, retention=context.retention)

    found: dict[str, Found | StoreError | None] = yield from by_id(context, ids, ask, _is_elsewhere)
    return found


def _is_elsewhere(one: Found | None) -> bool:
    return one is not None and one.state == MOVED


def find(context: Context, key: str) -> Plan[list[Found]]:
    """Read the messages that carry a business key and have not ended, by due time; at most 1,000 of each queue."""
    check_key(key, context.limits, "key")
    ids: list[str] = []
    counts: Counter[int] = Counter()
    pages = yield from every_queue(context, lambda keys: commands.find_by_key(keys, key, FIND_LIMIT))
    while pages:  # more than one round only if many messages with the key have ended
        ids += (id for page in pages.values() for id in page)
        counts.update({queue: len(page) for queue, page in pages.items()})
        behind = {queue: page.behind for queue, page in pages.items() if page.behind and counts[queue] < FIND_LIMIT}
        asked = [
            commands.find_by_key(context.keys.queue(queue), key, FIND_LIMIT - counts[queue], id)
            for queue, id in behind.items()
        ]
        pages = dict(zip(behind, all_good((yield asked)), strict=True)) if asked else {}
    ids.sort()
    found = [one for one in (yield from get(context, ids)) if one is not None and one.record is not None]
    return sorted(found, key=lambda one: (one.due if one.due is not None else MAX_DUE, one.id))


def count(context: Context, key: str) -> Plan[int]:
    """Count the messages that carry a reserved key; raises StoreError."""
    return sum((yield from every_queue(context, lambda keys: commands.count_key(keys, key))).values())
