"""Tells whether this process stood still: what it pulled before may be another node's, or paused, by now."""

from __future__ import annotations

import threading

import structlog

from delayq.clock import Clock

__all__ = ["PauseDetector"]

BEATS = 4  # in the longest gap that is none
log = structlog.get_logger()


class PauseDetector:
    """Counts the pauses of this process (SIGSTOP, a machine that was frozen) that were longer than `longest` ms.

    A thread beats so often that a gap between two beats means a pause. Whoever asks looks at the clock too, so that
    it does not matter who goes on first after one.
    """

    def __init__(self, clock: Clock, longest: int) -> None:
        self._clock = clock
        self._longest = longest
        self._lock = threading.Lock()
        self._beat_at = clock.monotonic()
        self._pauses = 0
        self._condition = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def pauses(self) -> int:
        """How many there were until now; this is a beat too."""
        with self._lock:
            now = self._clock.monotonic()
            gap, self._beat_at = now - self._beat_at, now
            if gap > self._longest:
                self._pauses += 1
                log.warning("stood_still", ms=gap)
            return self._pauses

    def start(self) -> None:
        """Start the thread; again is harmless."""
        if self._thread is None:
            self._beat_at = self._clock.monotonic()
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._condition:
            while not self._stopping:
                try:
                    _ = self.pauses
                except Exception:  # a log that cannot be written
                    log.exception("pulse_failed")
                self._clock.wait(self._condition, self._longest / BEATS)

    def stop(self) -> None:
        """End the thread; again is harmless."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def join(self, timeout_ms: int) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
