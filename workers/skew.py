"""How far the clock of this node is from that of Redis.

Pull goes by the earlier of the two, so a difference makes late, never early. A node that is behind delivers late, so
it leaves its queues to nodes that are not.
"""

from __future__ import annotations

import structlog

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.store import Store

__all__ = ["FAR", "Skew"]

EVERY = 2_000  # ms between two looks
#: A difference of so many ms counts; below NEAR for all of STEADY it does not any more.
FAR = 2_000
NEAR = 1_000
STEADY = 30_000
log = structlog.get_logger()


class Skew:
    """Compares the clocks now and then; `tick` is called by the node's thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.ms = 0  # the clock of Redis minus this node's
        self.far = False
        self.answers = True  # whether Redis did when it was asked last
        self._store = store
        self._clock = clock
        self._next = clock.monotonic()
        self._near_since: int | None = None

    @property
    def behind(self) -> bool:
        """Whether this node would deliver late: its clock is far behind that of Redis."""
        return self.far and self.ms > 0

    def tick(self) -> None:
        """Compare, if it is time."""
        before = self._clock.monotonic()
        if before < self._next:
            return
        self._next = before + EVERY
        try:
            theirs = self._store.run(commands.redis_now())
        except StoreError:
            self.answers = False
            return
        self.answers = True
        after, took = self._clock.now(), self._clock.monotonic() - before
        # Redis looked at its clock at some moment of the trip: the difference lies between the two ends.
        least, most = theirs - after, theirs - after + took
        self.ms = least + took // 2
        self._judge(least, most)

    def _judge(self, least: int, most: int) -> None:
        if least >= FAR or most <= -FAR:
            self._near_since = None
            if not self.far:
                self.far = True
                log.error("clock_skew", behind_redis_ms=self.ms)
        elif least <= -NEAR or most >= NEAR:
            self._near_since = None
        elif self.far:
            now = self._clock.monotonic()
            self._near_since = now if self._near_since is None else self._near_since
            if now - self._near_since >= STEADY:
                self.far = False
                log.info("clock_skew_over", behind_redis_ms=self.ms)
