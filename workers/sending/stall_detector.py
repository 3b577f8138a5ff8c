"""Detects stalls of this process. After a stall, messages in memory may belong to another node, or be paused."""

from __future__ import annotations

import threading

import structlog

from delayq.base.clock import Clock

BEATS = 4  # readings of the clock in the longest gap that is no stall
log = structlog.get_logger()


class StallDetector:
    """Counts the stalls of this process that last longer than `longest` ms, for example a SIGSTOP or a frozen machine.

    A thread reads the clock so often that a long gap between two readings means a stall. `count` reads the clock, too, so after
    a stall it does not matter which thread runs first.
    """

    def __init__(self, clock: Clock, longest: int) -> None:
        self._clock = clock
        self._longest = longest
        self._lock = threading.Lock()
        self._beat_at = clock.monotonic()
        self._stalls = 0
        self._condition = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """The number of stalls."""
        with self._lock:
            now = self._clock.monotonic()
            gap, self._beat_at = now - self._beat_at, now
            if gap > self._longest:
                self._stalls += 1
                log.warning("stood_still", ms=gap)
            return self._stalls

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if self._thread is None:
            self._beat_at = self._clock.monotonic()
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._condition:
            while not self._stopping:
                try:
                    _ = self.count
                except Exception:  # for example if the log cannot be written
                    log.exception("pulse_failed")
                self._clock.wait(self._condition, self._longest / BEATS)

    def stop(self) -> None:
        """End the thread. A second call does nothing."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def join(self, timeout_ms: int) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
