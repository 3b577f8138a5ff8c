"""Detects faults that show only over time.

- A queue sends messages, and none is confirmed.
- A queue cannot be pulled for long.
- Redis lost its last changes.
"""

from __future__ import annotations

import threading
from typing import Final

import structlog

from delayq.base.clock import Clock

BACK_OFF = 10_000  # ms without messages in flight that count as the back-off before another attempt
PULLS_FAIL_AFTER = 10_000  # ms in which every pull failed
#: The counters in the answer of a pull.
COUNTED: Final = ("scheduled", "forwarded", "cancelled")
log = structlog.get_logger()


class Progress:
    """The progress of one pull job. The queue is stuck if no message is confirmed for `limit` ms."""

    def __init__(self, queue: str, clock: Clock, limit: int) -> None:
        self.stuck = False
        self._queue = queue
        self._clock = clock
        self._limit = limit
        self._since: int | None = None  # of the first message in flight after the last confirmation
        self._outstanding_at = 0
        self.pulls_fail: str | None = None  # the error, once every pull has failed for long
        self._pulls_fail_since: int | None = None

    def record(self, *, confirmed: bool, outstanding: bool) -> None:
        """Record a tick. `confirmed`: Redis has removed or buried messages. `outstanding`: others are still in flight."""
        now = self._clock.monotonic()
        if confirmed or (not outstanding and now - self._outstanding_at > BACK_OFF):
            self._since = None
        if outstanding:
            self._outstanding_at = now
            if self._since is None:
                self._since = now
        stuck = self._since is not None and now - self._since >= self._limit
        if stuck and not self.stuck:
            log.error("stuck_queue", queue=self._queue, unconfirmed_for_ms=now - (self._since or 0))
        elif self.stuck and not stuck:
            log.info("stuck_queue_over", queue=self._queue)
        self.stuck = stuck

    def pulled(self, error: str | None) -> None:
        """Record a pull that succeeded, or failed with this error."""
        if error is None:
            if self.pulls_fail is not None:
                log.info("pulls_fail_over", queue=self._queue)
            self.pulls_fail = self._pulls_fail_since = None
            return
        now = self._clock.monotonic()
        if self._pulls_fail_since is None:
            self._pulls_fail_since = now
        if now - self._pulls_fail_since >= PULLS_FAIL_AFTER:
            if self.pulls_fail is None:
                log.error("pulls_fail", queue=self._queue, error=error)
            self.pulls_fail = error


class LossDetector:
    """Detects that Redis lost its last changes: the counters of a queue never decrease otherwise.

    Every answer of a pull has them, and an owner gets at least one answer a second. So the last known values are about as old
    as the changes that a server may lose when it dies. Several threads may use it: each queue has one pull job at a time,
    which reads its answers in order.
    """

    def __init__(self) -> None:
        self.went_back = 0
        self._counted: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def compare(self, queue: int, counted: tuple[int, ...]) -> bool:
        """Compare the counters of a queue with those of the answer before. True if it has lost some."""
        before = self._counted.get(queue, counted)
        self._counted[queue] = counted
        lost = [
            f"from {old} {name} messages to {new}"
            for name, old, new in zip(COUNTED, before, counted, strict=True)
            if new < old
        ]
        if lost:
            self.record(f"queue {queue} went back {' and '.join(lost)}")
        return bool(lost)

    def record(self, what: str) -> None:
        """Count and log a loss. `what` is the sentence about it, without its end."""
        with self._lock:
            self.went_back += 1
        text = f"{what}: its Redis has lost its last changes"
        log.error("went_back", text=f"{text} (killed or cut off with a slow disk, a fail-over, an older backup)")
