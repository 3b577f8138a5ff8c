"""When a change counts as made: once enough replicas have it, or the disk.

WAIT and WAITAOF speak of the writes of their own connection, so they follow the scripts on it, as the last commands
of an exchange. What was answered on a connection that broke before they did is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from delayq.errors import NotDurable, StoreError
from delayq.store.commands import Command, plain
from delayq.store.exchange import UNANSWERED, Exchange

__all__ = ["Barrier", "Durability", "DurableExchange"]

#: The scripts whose answer is a promise.
PROMISES: Final = frozenset(("schedule", "cancel", "reschedule", "redrive", "discard", "relist", "close"))
#: Scripts that the server had lost are sent once more, behind the barrier; then it needs another one.
BARRIERS: Final = 3


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """Where a change has to be before it is answered: in `replicas` replicas, and (`waitaof`) on the primary's disk.

    `timeout` bounds the wait, in ms.
    """

    replicas: int = 0
    waitaof: bool = False
    timeout: int

    @property
    def parts(self) -> int:
        """How many waits make a barrier."""
        return self.waitaof + (self.replicas > 0)


class Barrier:
    """What was changed on one connection and is not yet known to be kept."""

    def __init__(self, durability: Durability) -> None:
        self.uncovered: set[int] = set()
        self._durability = durability
        # Less than the time-out of a reply, and never 0, which would mean for ever.
        self._wait = max(1, durability.timeout * 3 // 4 // max(1, durability.parts))
        self._dirty = False
        self._key = ""
        self._answered_key = ""
        self._written = False  # the tiny write of the last barrier
        self._void = False  # it came behind its wait, the server having lost the script
        self._passed = 0
        self._sent = 0

    def sent(self, command: Command[Any]) -> None:
        """A command is on its way."""
        if command.script in PROMISES:
            self._key = command.keys[0]
            self._dirty = True

    def answered(self, index: int, command: Command[Any]) -> None:
        """Its reply has come; replies come in order, so a later barrier speaks of it."""
        if command.script in PROMISES:
            self.uncovered.add(index)
            self._answered_key = command.keys[0]

    @property
    def needed(self) -> bool:
        """Whether something was sent behind the last barrier, or that one's own key lies elsewhere by now."""
        return self._sent < BARRIERS and (self._dirty or (bool(self.uncovered) and (self._void or not self._written)))

    def commands(self) -> Iterator[Command[Any]]:
        """What is to be sent behind the changes."""
        key = self._answered_key or self._key
        self._sent += 1
        self._dirty = self._written = self._void = False
        yield Command("barrier", (key,), (), self._begun)
        if self._durability.waitaof:
            yield plain("WAITAOF", 1, 0, self._wait, read=lambda reply: self._pass(reply[0] >= 1), key=key)
        if self._durability.replicas:
            replicas = self._durability.replicas
            yield plain("WAIT", replicas, self._wait, read=lambda reply: self._pass(reply >= replicas), key=key)

    def _begun(self, _reply: Any) -> None:
        self._written = True
        self._passed = 0

    def _pass(self, enough: bool) -> None:
        self._void = self._void or not self._written
        self._passed += enough
        if not self._void and self._passed == self._durability.parts:
            self.uncovered.clear()

    def error(self) -> NotDurable:
        """What is told of a change that is not known to be kept."""
        wanted = []
        if self._durability.replicas:
            wanted.append(f"{self._durability.replicas} replicas have it")
        if self._durability.waitaof:
            wanted.append("it is on the disk")
        return NotDurable(f"Redis took it, but did not confirm in time that {' and that '.join(wanted)}")


class DurableExchange(Exchange):
    """An exchange that ends with a barrier if it changed something."""

    def __init__(self, commands: Iterable[Command[Any]], durability: Durability) -> None:
        super().__init__(commands)
        self._barrier = Barrier(durability)
        self._length: int | None = None  # of the answers that the caller gets; the barrier's stand behind them
        self._lost: set[int] = set()

    def to_send(self) -> Iterator[tuple[int, Command[Any]]]:
        """What is to be sent, and behind it the barrier."""
        yield from super().to_send()
        if self._barrier.needed:
            if self._length is None:
                self._length = len(self.answers)
            for command in self._barrier.commands():
                self.answers.append(UNANSWERED)
                yield len(self.answers) - 1, command

    def sent(self, index: int, command: Command[Any], size: int) -> None:
        """It is on its way."""
        super().sent(index, command, size)
        self._barrier.sent(command)

    def take(self) -> tuple[int, Command[Any]]:
        """The command whose reply has come."""
        index, command = super().take()
        self._barrier.answered(index, command)
        return index, command

    @property
    def done(self) -> bool:
        """Whether no further barrier has to be sent."""
        return not self._barrier.needed

    def broke(self, error: Exception) -> bool:
        """As of every exchange; what was answered and not yet covered stays unknown."""
        self._lost |= self._barrier.uncovered
        self._barrier.uncovered.clear()
        return super().broke(error)

    def result(self) -> list[Any]:
        """The answers, with an error in place of what is not known to be kept."""
        answers = self.answers[: self._length]
        for index in self._lost | self._barrier.uncovered:
            if not isinstance(answers[index], StoreError):
                answers[index] = self._barrier.error()
        return answers
