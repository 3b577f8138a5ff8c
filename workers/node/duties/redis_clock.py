"""One question to Redis for all that a node has to know again and again: whether it answers, the time, the layouts, the
version of the policies.

Pull goes by the earlier of the two clocks, so a difference makes late, never early. A node that is behind delivers late,
so it leaves its queues to nodes that are not.
"""

from __future__ import annotations

import structlog

from coordinator import REDIS_AWAY
from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Glance
from delayq.store.connect.store import Store

__all__ = ["FAR", "NEAR", "STEADY", "RedisClock", "Skew"]

#: A difference of so many ms counts; below NEAR for all of STEADY it does not any more.
FAR = 2_000
NEAR = 1_000
STEADY = 30_000
log = structlog.get_logger()


class Skew:
    """Told now and then what the clock of Redis says; belongs to the node's thread."""

    def __init__(self, clock: Clock) -> None:
        self.ms = 0  # the clock of Redis minus this node's
        self.far = False
        #: This node would deliver late: its clock was far behind that of Redis, and has not been near it since.
        self.behind = False
        self._clock = clock
        self._near_since: int | None = None

    def compare(self, theirs: int, asked_at: int) -> None:
        """Redis has just said that it is `theirs` (Unix ms); it was asked at `asked_at` (monotonic ms)."""
        after = self._clock.now()
        # Looked at last: if this process stood still meanwhile, that makes the trip longer, and not the clock wrong.
        took = self._clock.monotonic() - asked_at
        # Redis looked at its clock at some moment of the trip: the difference lies between the two ends.
        least, most = theirs - after, theirs - after + took
        self.ms = least + took // 2
        self.behind = least >= FAR or (self.behind and most >= NEAR)
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


class RedisClock:
    """Asks every so many ms; `tick` is called by the node's thread."""

    def __init__(self, store: Store, skew: Skew, clock: Clock, *, every: int) -> None:
        self.answers = True  # whether Redis did when it was asked last
        self.took = 0  # ms that its last answer took
        self._store = store
        self._skew = skew
        self._clock = clock
        self._every = every
        self._next = clock.monotonic()
        self._away_since = self._next

    @property
    def reachable(self) -> bool:
        """Whether Redis answers, or did not long ago."""
        return self.answers or self._clock.monotonic() - self._away_since < REDIS_AWAY

    def tick(self) -> Glance | None:
        """Ask, if it is time; None if there is no news."""
        before = self._clock.monotonic()
        if before < self._next:
            return None
        self._next = before + self._every
        try:
            glance = self._store.run(commands.glance())
        except StoreError as error:
            if self.answers:  # since it was asked: that it was not asked for long before proves nothing
                self.answers, self._away_since = False, before
            log.warning("redis_trouble", error=str(error))
            return None
        self.answers = True
        self.took = self._clock.monotonic() - before
        self._skew.compare(glance.now, before)
        return glance
