"""Time is handed in: nothing else in delayq reads the clock of the machine."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "pause", "unix_ns"]

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
