"""Whether a queue hands messages out and none of them is ever confirmed."""

from __future__ import annotations

import structlog

from delayq.clock import Clock

__all__ = ["Progress"]

BACK_OFF = 10_000  # ms without anything handed out that count as the pause before another attempt
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
