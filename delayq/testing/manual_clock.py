"""A clock that only moves when a test advances it."""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["START", "ManualClock"]

#: A moment of 2027, so that due times have as many digits as real ones.
START: Final = 1_800_000_000_000


class ManualClock:
    """A `Clock` that moves only when a test moves it."""

    def __init__(self, now: int = START) -> None:
        self._lock = threading.Lock()
        self._now = now
        self._monotonic = 0
        self._waiters: dict[threading.Condition, int] = {}  # how many wait on each
        self._someone_waits = threading.Condition(self._lock)

    def now(self) -> int:
        """Unix time in ms."""
        with self._lock:
            return self._now

    def monotonic(self) -> int:
        """ms since this clock was made; it never steps."""
        with self._lock:
            return self._monotonic

    def precise(self) -> float:
        """As `monotonic`."""
        return float(self.monotonic())

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition` until it is notified or the clock was moved on; False when that was too far."""
        with self._lock:
            deadline = self._monotonic + timeout_ms
            if timeout_ms <= 0:
                return False
            self._waiters[condition] = self._waiters.get(condition, 0) + 1
            self._someone_waits.notify_all()
        try:
            condition.wait()
        finally:
            with self._lock:
                self._waiters[condition] -= 1
                if not self._waiters[condition]:
                    del self._waiters[condition]
        return self.monotonic() < deadline

    def advance(self, ms: int) -> None:
        """Move on, and wake all that wait: they see for themselves whether their time has come."""
        if ms < 0:
            raise ValueError("time does not go back; step the wall clock by set_now")
        with self._lock:
            self._now += ms
            self._monotonic += ms
        self._wake_all()

    def set_now(self, now: int) -> None:
        """Step the wall clock, ahead or back, as a correction by NTP would; the monotonic one goes on evenly."""
        with self._lock:
            self._now = now

    def wait_for_waiters(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait (in real time) until so many threads wait on this clock; raises TimeoutError."""
        with self._someone_waits:
            if not self._someone_waits.wait_for(lambda: sum(self._waiters.values()) >= count, timeout):
                raise TimeoutError(f"{sum(self._waiters.values())} of {count} threads wait on the clock")

    def _wake_all(self) -> None:
        with self._lock:
            conditions = list(self._waiters)
        for condition in conditions:
            with condition:  # a waiter holds it from before it was counted until it sleeps: no wake is lost
                condition.notify_all()
