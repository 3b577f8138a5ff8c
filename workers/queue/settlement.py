"""The outcomes that Redis does not know yet.

They survive an outage of Redis, and come first when Redis is back. Redis may safely receive an outcome twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from delayq.store import commands
from delayq.store.commands import AsPulled, Command, Now
from workers.queue.outcomes import Ack, Bury, Outcome, Park, Retry
from workers.queue.queue_context import QueueContext

CHUNK = 500


class Corrupt(msgspec.Struct, frozen=True):
    """A pulled message whose record cannot be read: it can only be buried, and is not in flight."""

    ticket: bytes
    score: int
    attempts: int
    digest: None = None
    topic: str = ""
    index_keys: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """One command of a settlement, with the kind of its outcomes, and the parked set if it parks."""

    outcome: type[Outcome]
    name: str
    entries: Sequence[tuple[Any, Any]]  # messages, each with its outcome
    command: Command[Any]

    @property
    def tickets(self) -> Iterator[bytes]:
        """The tickets that it settles."""
        return (message.ticket for message, _ in self.entries)


class Settlement:
    """The messages and outcomes that Redis does not know, by their step. They are removed when Redis has answered."""

    def __init__(self) -> None:
        self._unsent = defaultdict[tuple[type[Outcome], str], list[tuple[Any, Any]]](list)
        # Acks come first: without them, the next owner would deliver these messages again.
        self._unsent[Ack, ""] = []

    def __bool__(self) -> bool:
        return any(self._unsent.values())

    @property
    def but_parkings(self) -> bool:
        """Whether there is an outcome other than Park."""
        return any(unsent for (outcome, _), unsent in self._unsent.items() if outcome is not Park)

    def to_park(self, name: str) -> Sequence[tuple[Any, Any]]:
        """The messages that are about to go into a parked set."""
        return self._unsent.get((Park, name), ())

    @property
    def names(self) -> set[str]:
        """The names of parked sets that are about to get messages."""
        return {name for (_, name), unsent in self._unsent.items() if name and unsent}

    def add(self, message: AsPulled, outcome: Outcome) -> None:
        """Add an outcome to the next step."""
        self._unsent[type(outcome), outcome.name if isinstance(outcome, Park) else ""].append((message, outcome))

    def keep_acks_only(self) -> None:
        """Forget all other outcomes. Their messages stay in the queue, unchanged."""
        for (outcome, _), unsent in self._unsent.items():
            if outcome is not Ack:
                unsent.clear()

    def steps(self, context: QueueContext, now: Now) -> list[Step]:
        """Return the commands."""
        return [
            Step(outcome, name, some, _command(context, outcome, name, some, now))
            for (outcome, name), unsent in self._unsent.items()
            for some in (unsent[start : start + CHUNK] for start in range(0, len(unsent), CHUNK))
        ]

    def answered(self, step: Step) -> None:
        """Remove the outcomes of a step that Redis has answered. Steps are answered in their order."""
        unsent = self._unsent[step.outcome, step.name]
        del unsent[: len(step.entries)]
        if step.name and not unsent:
            del self._unsent[step.outcome, step.name]


def _command(
    context: QueueContext, outcome: type[Outcome], name: str, some: Sequence[tuple[Any, Any]], now: Now
) -> Command[Any]:
    keys, epoch = context.keys, context.incarnation.name
    messages = [message for message, _ in some]
    if outcome is Ack:
        return commands.ack(keys, epoch, messages, now=now, retention=context.retention)
    if outcome is Retry:
        return commands.retry(keys, epoch, [(message, retry.due) for message, retry in some])
    if outcome is Bury:
        buried = [(message, message.attempts + 1, bury.reason) for message, bury in some]
        return commands.bury(keys, epoch, buried, now=now)
    return commands.park(keys, epoch, name, messages)
