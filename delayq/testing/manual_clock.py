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
        self._waiters: dict[threading.Condition, int] = {}  # the number of waiting threads of each
        self._someone_waits = threading.Condition(self._lock)

    def now(self) -> int:
        """Return Unix time in ms."""
        with self._lock:
            return self._now

    def monotonic(self) -> int:
        """Return ms since this clock was made; it never steps."""
        with self._lock:
            return self._monotonic

    def precise(self) -> float:
        """Return the same as `monotonic`."""
        return float(self.monotonic())

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        """Wait on a held `condition` until it is notified or the clock is moved. Return False if it moved beyond the
        timeout.
        """
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
        """Move forward, and wake all waiting threads: each checks whether its time has come."""
        if ms < 0:
            raise ValueError("time does not go back; use set_now to step the wall clock")
        with self._lock:
            self._now += ms
            self._monotonic += ms
        self._wake_all()

    def set_now(self, now: int) -> None:
        """Step the wall clock, ahead or back, as a correction by NTP would; the monotonic one goes on evenly."""
        with self._lock:
            self._now = now

    def wait_for_waiters(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait (in real time) until this many threads wait on this clock. Raises TimeoutError."""
        with self._someone_waits:
            if not self._someone_waits.wait_for(lambda: sum(self._waiters.values()) >= count, timeout):
                raise TimeoutError(f"{sum(self._waiters.values())} of {count} threads wait on the clock")

    def _wake_all(self) -> None:
        with self._lock:
            conditions = list(self._waiters)
        for condition in conditions:
            with condition:  # a waiter holds it from its registration until it sleeps, so no wake is lost
                condition.notify_all()
