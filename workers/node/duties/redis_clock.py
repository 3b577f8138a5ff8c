"""The glance: one command that returns Redis's time, its layouts and the version of its policies.

It also shows whether Redis answers. A pull uses the earlier of the two clocks, so a wrong clock makes deliveries late, never
early. A node whose clock is behind would deliver late, so it leaves its queues to other nodes.
"""

from __future__ import annotations

import structlog

from coordinator import REDIS_AWAY
from delayq.base.clock import AdvancedClock, Clock
from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Glance
from delayq.store.connect.store import Store

#: A difference of FAR ms counts as wrong, until it has been below NEAR ms for STEADY ms.
FAR = 2_000
NEAR = 1_000
STEADY = 30_000
log = structlog.get_logger()


class Skew:
    """The difference between the node's clock and that of Redis. Belongs to the node's thread."""

    def __init__(self, clock: Clock) -> None:
        self.ms = 0  # the clock of Redis minus this node's
        self._follows = isinstance(clock, AdvancedClock)  # the node moves this clock as the server's time moves
        self.far = False
        #: Whether this node would deliver late: its clock was far behind that of Redis, and is not near it again.
        self.behind = False
        self._clock = clock
        self._near_since: int | None = None

    @property
    def complaint(self) -> str | None:
        """The sentence about a wrong clock, or None."""
        if not self.far:
            return None
        off = abs(self.ms)
        if off < FAR:  # it was corrected
            since = f"this ends {STEADY // 1_000} s after it came below {NEAR} ms"
            return f"the clock of this worker was {FAR} ms or more from that of Redis, and is {off} ms from it now: {since}"
        where = f"{off} ms {'behind' if self.ms > 0 else 'ahead of'} that of Redis"
        return f"the clock of this worker is {where}, and {FAR} is too much: synchronise both clocks (NTP)"

    def compare(self, theirs: int, asked_at: int) -> None:
        """Compare the clocks. Redis answered `theirs` (Unix ms) to a command that was sent at `asked_at` (monotonic ms)."""
        if self._follows:
            return
        after = self._clock.now()
        # Read last: if this process stalled meanwhile, the trip took longer, and the clock is not wrong.
        took = self._clock.monotonic() - asked_at
        # Redis read its clock at some moment of the trip, so the difference lies between these values.
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
    """Whether Redis answers, and how fast. Belongs to the node's thread."""

    def __init__(self, store: Store, skew: Skew, clock: Clock) -> None:
        self.answers = True  # whether Redis answered the last glance
        self.took = 0  # ms until the last answer
        self._store = store
        self._skew = skew
        self._clock = clock
        self._away_since = clock.monotonic()

    @property
    def reachable(self) -> bool:
        """Whether Redis answers, or was away for less than REDIS_AWAY ms."""
        return self.answers or self._clock.monotonic() - self._away_since < REDIS_AWAY

    def glance(self) -> Glance | None:
        """Ask Redis; None if it does not answer."""
        before = self._clock.monotonic()
        try:
            glance = self._store.run(commands.glance(self._store.keys))
        except StoreError as error:
            if self.answers:  # Redis was away since this glance began: the time before it proves nothing
                self.answers, self._away_since = False, before
            log.warning("redis_trouble", error=str(error))
            return None
        self.answers = True
        self.took = self._clock.monotonic() - before
        self._skew.compare(glance.now, before)
        return glance
