"""What Redis has yet to be told about held messages: acks, retries, burials, parkings.

It is kept over an outage of Redis and told first when it is back; telling it twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from delayq.store import commands
from delayq.store.commands import AsPulled, Command, Now, Retention
from delayq.store.keys import QueueKeys
from workers.sending.message import InFlightMessage, Stage

__all__ = ["Settlement", "Step"]

CHUNK = 500


class Corrupt(msgspec.Struct, frozen=True):
    """A pulled message whose record cannot be read: it can only be buried."""

    ticket: bytes
    score: int
    attempts: int
    digest: None = None
    keys: tuple[str, ...] = ()


class Step(msgspec.Struct):
    """One command of a settlement, what it settles, and the name of the parked set if it parks."""

    kind: str
    items: Sequence[Any]
    command: Command[Any]
    name: str = ""

    @property
    def tickets(self) -> Iterator[bytes]:
        """The tickets that it settles."""
        return ((item[0] if isinstance(item, tuple) else item).ticket for item in self.items)


class Settlement:
    """Messages by what becomes of them; a step is taken off once Redis has answered it."""

    def __init__(self) -> None:
        self.acks: list[InFlightMessage] = []
        self.retries: list[tuple[InFlightMessage, int | None]] = []
        self.burials: list[tuple[AsPulled, int, str]] = []
        self.parkings: dict[str, list[InFlightMessage]] = {}
        self.bytes_to_park: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.acks or self.retries or self.burials or self.parkings)

    def ack(self, held: InFlightMessage) -> None:
        """Forget the message: it was forwarded."""
        held.stage = Stage.SETTLING
        self.acks.append(held)

    def retry(self, held: InFlightMessage, next_due: int | None) -> None:
        """Count a failed attempt; None keeps the due."""
        held.stage = Stage.SETTLING
        self.retries.append((held, next_due))

    def bury(self, held: AsPulled, reason: str) -> None:
        """Give the message up after one attempt more."""
        if isinstance(held, InFlightMessage):
            held.stage = Stage.SETTLING
        self.burials.append((held, held.attempts + 1, reason))

    def park(self, name: str, held: InFlightMessage) -> None:
        """Set the message aside under `name`."""
        held.stage = Stage.SETTLING
        self.parkings.setdefault(name, []).append(held)
        self.bytes_to_park[name] = self.bytes_to_park.get(name, 0) + held.size

    def keep_acks_only(self) -> None:
        """Forget the rest: it stays in the queue as it was."""
        self.retries.clear()
        self.burials.clear()
        self.parkings.clear()
        self.bytes_to_park.clear()

    def steps(self, keys: QueueKeys, epoch: str, now: Now, retention: Retention) -> Iterator[Step]:
        """The commands that tell it, acks first."""
        for acks in _chunks(self.acks):
            yield Step("ack", acks, commands.ack(keys, epoch, acks, now=now, retention=retention))
        for retries in _chunks(self.retries):
            yield Step("retry", retries, commands.retry(keys, epoch, retries))
        for burials in _chunks(self.burials):
            yield Step("bury", burials, commands.bury(keys, epoch, burials, now=now))
        for name, parked in self.parkings.items():
            for some in _chunks(parked):
                yield Step("park", some, commands.park(keys, epoch, name, some), name)

    def told(self, step: Step) -> None:
        """Take off what Redis has answered. Steps are answered in the order in which they were made."""
        count = len(step.items)
        if step.kind == "ack":
            del self.acks[:count]
        elif step.kind == "retry":
            del self.retries[:count]
        elif step.kind == "bury":
            del self.burials[:count]
        else:
            del self.parkings[step.name][:count]
            self.bytes_to_park[step.name] -= sum(held.size for held in step.items)
            if not self.parkings[step.name]:
                del self.parkings[step.name], self.bytes_to_park[step.name]


def _chunks(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
