"""Time is handed in: nothing else in delayq reads the clock of the machine."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["AdvancedClock", "Clock", "SystemClock", "pause", "unix_ns"]

#: Unix time in ns, for ids alone: what happens is decided by a clock that is handed in.
unix_ns = time.time_ns


class Clock(Protocol):
    """What the time is, and how to wait for it."""

    def now(self) -> int:
        """Unix time in ms."""

    def monotonic(self) -> int:
        """ms of a clock that never steps; only differences mean anything."""

    def precise(self) -> float:
        """As `monotonic`, with what is less than a ms."""

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition`; False when the time-out passed first."""


def pause(clock: Clock, ms: float) -> None:
    """Wait for so many ms, whatever happens meanwhile."""
    never = threading.Condition()
    with never:
        clock.wait(never, ms)


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Unix time in ms."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """ms of the machine's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def precise(self) -> float:
        """ms of the machine's monotonic clock, with what is less than a ms."""
        return time.monotonic_ns() / 1e6

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition`; False when the time-out passed first."""
        return condition.wait(timeout_ms / 1000)


class AdvancedClock:
    """The machine's clock plus what a development server has advanced its time by; for the workers of such a server.

    Both the wall clock and the monotonic one jump, as if the machine had been suspended.
    """

    def __init__(self) -> None:
        self.machine = SystemClock()
        self.advanced = 0  # ms
        self._lock = threading.Lock()
        self._waiters: dict[threading.Condition, int] = {}  # how many wait on each
        self._read = threading.local()  # what each thread knew of `advanced` when it read this clock last

    def now(self) -> int:
        """Unix time in ms."""
        return self.machine.now() + self._advanced()

    def monotonic(self) -> int:
        """ms of a monotonic clock, which jumps when time is advanced."""
        return self.machine.monotonic() + self._advanced()

    def precise(self) -> float:
        """As `monotonic`, with what is less than a ms."""
        return self.machine.precise() + self._advanced()

    def _advanced(self) -> int:
        self._read.advanced = self.advanced
        return self.advanced

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition` until it is notified or time is advanced; False when the time-out passed first."""
        with self._lock:
            # The caller reckoned the time-out by a clock that has jumped since: it has to read the clock again.
            if getattr(self._read, "advanced", self.advanced) != self.advanced:
                self._read.advanced = self.advanced
                return True
            self._waiters[condition] = self._waiters.get(condition, 0) + 1
        try:
            return self.machine.wait(condition, timeout_ms)
        finally:
            with self._lock:
                self._waiters[condition] -= 1
                if not self._waiters[condition]:
                    del self._waiters[condition]

    def advance_to(self, advanced: int) -> None:
        """Be ahead of the machine's clock by so many ms, and wake all that wait; time never goes back."""
        with self._lock:
            self.advanced = max(self.advanced, advanced)
            conditions = list(self._waiters)
        for condition in conditions:
            with condition:  # a waiter holds it from before it was counted until it sleeps: no wake is lost
                condition.notify_all()
