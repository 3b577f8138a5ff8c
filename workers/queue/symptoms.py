"""What shows only over time that something is wrong: a queue that hands messages out and has none of them confirmed, one
that cannot be pulled for long, a Redis that went back."""

from __future__ import annotations

import threading
from typing import Final

import structlog

from delayq.clock import Clock

__all__ = ["History", "Progress"]

BACK_OFF = 10_000  # ms without anything handed out that count as the pause before another attempt
PULLS_FAIL_AFTER = 10_000  # ms in which every pull failed
#: What a pull tells the counts of.
COUNTED: Final = ("scheduled", "forwarded", "cancelled")
log = structlog.get_logger()


class Progress:
    """Told after each tick of a pull job. `limit` is how long (ms) nothing may be confirmed."""

    def __init__(self, queue: str, clock: Clock, limit: int) -> None:
        self.stuck = False
        self._queue = queue
        self._clock = clock
        self._limit = limit
        self._since: int | None = None  # of the first message handed out that nothing was confirmed after
        self._outstanding_at = 0
        self.pulls_fail: str | None = None  # why, once every pull has failed for long
        self._pulls_fail_since: int | None = None

    def see(self, *, confirmed: bool, outstanding: bool) -> None:
        """`confirmed`: Redis has taken down that messages were forwarded or buried. `outstanding`: some still are not."""
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
        """A pull went through, or failed with this error."""
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


class History:
    """The counters of each queue as its pulls told them last; they never go back by themselves.

    They ride in every answer, of which an owner gets at least one a second: what is remembered is hardly older than
    what a server that dies may lose, and the first answer after it is compared. Threads may share it: a queue has one
    pull job at a time, which reads its answers in order.
    """

    def __init__(self) -> None:
        self.went_back = 0
        self._counted: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def see(self, queue: int, counted: tuple[int, ...]) -> None:
        """The counters of a queue have come with an answer."""
        before = self._counted.get(queue, counted)
        self._counted[queue] = counted
        lost = [
            f"from {old} {name} messages to {new}"
            for name, old, new in zip(COUNTED, before, counted, strict=True)
            if new < old
        ]
        if lost:
            self.tell(f"queue {queue} went back {' and '.join(lost)}")

    def tell(self, what: str) -> None:
        """Something is as it was before."""
        with self._lock:
            self.went_back += 1
        text = f"{what}: its Redis has lost its last changes"
        log.error("went_back", text=f"{text} (killed or cut off with a slow disk, a fail-over, an older backup)")
