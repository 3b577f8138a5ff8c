"""Whether a queue hands messages out and none of them is ever confirmed, and whether it can be pulled at all."""

from __future__ import annotations

import structlog

from delayq.clock import Clock

__all__ = ["Progress"]

BACK_OFF = 10_000  # ms without anything handed out that count as the pause before another attempt
PULLS_FAIL_AFTER = 10_000  # ms in which every pull failed
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
        now = self._clock.monotonic()
        if error is None:
            if self.pulls_fail is not None:
                log.info("pulls_fail_over", queue=self._queue)
            self.pulls_fail = self._pulls_fail_since = None
            return
        if self._pulls_fail_since is None:
            self._pulls_fail_since = now
        if now - self._pulls_fail_since >= PULLS_FAIL_AFTER:
            if self.pulls_fail is None:
                log.error("pulls_fail", queue=self._queue, error=error)
            self.pulls_fail = error
