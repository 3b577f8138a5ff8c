"""Clocks are passed in as arguments: nothing else in delayq reads the clock of the machine."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from types import BuiltinFunctionType
from typing import Protocol

#: Unix time in ns, for ids alone. All decisions use a clock that is passed in.
unix_ns = time.time_ns
#: Tests of applications replace `time.monotonic` wherever a module refers to it (freezegun). A wait by such a clock would never
#: end, so waits use the clock of the system, which they leave alone. Windows does not have it.
_monotonic_ns = (
    partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC) if sys.platform != "win32" else partial(time.monotonic_ns)
)


class Clock(Protocol):
    """A clock: the current time, and waiting."""

    def now(self) -> int:
        """Return Unix time in ms."""

    def monotonic(self) -> int:
        """Return ms of a clock that never steps; only differences are meaningful."""

    def precise(self) -> float:
        """Return `monotonic` with fractions of a ms."""

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition`. Return False if the timeout passed first."""


def pause(clock: Clock, ms: float) -> None:
    """Wait for this many ms, without interruption."""
    never = threading.Condition()
    with never:
        clock.wait(never, ms)


def is_frozen() -> bool:
    """Whether a test has replaced the time of this process, and with it the time of its event loops, as freezegun does."""
    return not isinstance(time.monotonic, BuiltinFunctionType)


class SystemClock:
    """The machine's clock. A test that freezes time freezes `now` alone: waits end by real time."""

    def now(self) -> int:
        """Return Unix time in ms."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Return ms of the machine's monotonic clock."""
        return _monotonic_ns() // 1_000_000

    def precise(self) -> float:
        """Return ms of the machine's monotonic clock, with fractions of a ms."""
        return _monotonic_ns() / 1e6

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition`. Return False if the timeout passed first."""
        return condition.wait(timeout_ms / 1000)


class AdvancedClock:
    """The machine's clock plus the time that a development server was advanced by, for the workers of such a server.

    Both the wall clock and the monotonic one jump, as if the machine had been suspended.
    """

    def __init__(self) -> None:
        self.machine = SystemClock()
        self.advanced = 0  # ms
        self._lock = threading.Lock()
        self._waiters: dict[threading.Condition, int] = {}  # the number of waiting threads of each
        self._read = threading.local()  # the value of `advanced` when each thread last read this clock

    def now(self) -> int:
        """Return Unix time in ms."""
        return self.machine.now() + self._advanced()

    def monotonic(self) -> int:
        """Return ms of a monotonic clock, which jumps when time is advanced."""
        return self.machine.monotonic() + self._advanced()

    def precise(self) -> float:
        """Return `monotonic` with fractions of a ms."""
        return self.machine.precise() + self._advanced()

    def _advanced(self) -> int:
        self._read.advanced = self.advanced
        return self.advanced

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition` until it is notified or time is advanced. Return False if the timeout passed
        first.
        """
        with self._lock:
            # The caller computed the timeout with a clock that has jumped since, so it must read the clock again.
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
        """Set the ms ahead of the machine's clock, and wake all waiting threads. Time never goes back."""
        with self._lock:
            self.advanced = max(self.advanced, advanced)
            conditions = list(self._waiters)
        for condition in conditions:
            with condition:  # a waiter holds the condition from its registration until it sleeps, so no wake is lost
                condition.notify_all()
