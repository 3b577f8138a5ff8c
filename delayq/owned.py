"""Operations for somebody who may touch messages of certain topics only.

A message is looked at first, and is touched only if it has the topic that was seen: whoever may not touch it learns
nothing of it and changes nothing, whatever becomes of its id in between. These are plans, as in `delayq.operations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delayq.asking import by_id, every_queue
from delayq.errors import InvalidMessage, StoreError
from delayq.message import check_key
from delayq.operations import FIND_LIMIT, Cancelled, Rescheduled
from delayq.plan import Context, Plan
from delayq.store import commands
from delayq.store.commands import MOVED, Command, Found
from delayq.store.exchange import all_good
from delayq.store.keys import QueueKeys, queue_keys

__all__ = ["cancel", "count", "discard", "find_ids", "look", "redrive", "reschedule"]

#: The topic that each id's message had when it was looked at; '' for an id that has ended.
Topics = Mapping[str, str]


def look(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """What is known of each id."""
    found: dict[str, Found | StoreError | None] = yield from by_id(
        context, ids, lambda keys, some: commands.get(keys, some, retention=context.retention),
        lambda one: one is not None and one.state == MOVED,
    )  # fmt: skip
    return found


def _topics(topics: Topics, ids: Sequence[str]) -> list[str]:
    return [topics[id] for id in ids]


def cancel(context: Context, topics: Topics) -> Plan[dict[str, Cancelled | StoreError]]:
    """Cancel messages; how each of them went."""

    def ask(keys: QueueKeys, some: list[str]) -> Command[list[str]]:
        return commands.cancel_own(keys, some, _topics(topics, some), retention=context.retention)

    results = yield from by_id(context, topics, ask, lambda answer: answer == MOVED)
    return {id: one if isinstance(one, StoreError) else Cancelled(id, one) for id, one in results.items()}


def reschedule(context: Context, id: str, spec: str, topic: str) -> Plan[Rescheduled]:
    """Give a message another due; raises StoreError and InvalidMessage."""

    def ask(keys: QueueKeys, some: list[str]) -> Command[list[Rescheduled]]:
        command = commands.reschedule_own(keys, some[0], spec, topic, retention=context.retention)

        def read(reply: Any) -> list[Rescheduled]:
            result, due = command.read(reply)
            return [Rescheduled(id, result, due, keys.number)]

        return Command(command.script, command.keys, command.args, read)

    answers = yield from by_id(context, [id], ask, lambda answer: answer.result == MOVED)
    rescheduled: Rescheduled
    (rescheduled,) = all_good(list(answers.values()))
    if rescheduled.result == "invalid":
        raise InvalidMessage("delayTime", "the due lies too far ahead")
    return rescheduled


def redrive(context: Context, topics: Topics) -> Plan[dict[str, str | StoreError]]:
    """Put dead letters back, due now: 'scheduled', 'not_dead' or 'corrupt' of each."""

    def ask(keys: QueueKeys, some: list[str]) -> Command[list[str]]:
        return commands.redrive_own(keys, some, _topics(topics, some))

    results: dict[str, str | StoreError] = yield from by_id(context, topics, ask, lambda answer: answer == MOVED)
    return results


def discard(context: Context, id: str, topic: str) -> Plan[bool]:
    """Delete a dead letter for good; False if it is none; raises StoreError."""
    results = yield from by_id(
        context, [id], lambda keys, some: commands.discard_own(keys, some, (topic,)), lambda removed: removed is None
    )
    (removed,) = all_good(list(results.values()))
    return bool(removed)


def find_ids(context: Context, key: str, after: Mapping[int, str]) -> Plan[dict[int, list[str]]]:
    """By queue, a page of the ids that carry a business key: behind the ids of the pages before, {} for the first.

    Raises StoreError.
    """
    if not after:
        check_key(key, context.limits, "key")
        return (yield from every_queue(context, lambda keys: commands.find(keys, key, FIND_LIMIT)))
    answers = yield [commands.find(queue_keys(queue), key, FIND_LIMIT, id) for queue, id in after.items()]
    return dict(zip(after, all_good(answers), strict=True))


def count(context: Context, key: str) -> Plan[int]:
    """How many messages carry a business key and have not ended; raises StoreError."""
    return sum((yield from every_queue(context, lambda keys: commands.count_key(keys, key))).values())
