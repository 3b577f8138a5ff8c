"""One question to Redis for all that a node has to know again and again: whether it answers, the time, the layouts."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from coordinator import REDIS_AWAY
from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import Layout
from workers.node.skew import Skew

__all__ = ["RedisClock"]

log = structlog.get_logger()


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

    def tick(self) -> Sequence[Layout]:
        """Ask, if it is time: the layouts as they are listed now, none if there is no news."""
        before = self._clock.monotonic()
        if before < self._next:
            return ()
        self._next = before + self._every
        try:
            theirs, layouts = self._store.run(commands.time_and_layouts())
        except StoreError as error:
            if self.answers:  # since it was asked: that it was not asked for long before proves nothing
                self.answers, self._away_since = False, before
            log.warning("redis_trouble", error=str(error))
            return ()
        self.answers = True
        self.took = self._clock.monotonic() - before
        self._skew.compare(theirs, before)
        return layouts
