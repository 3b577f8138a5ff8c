"""How fast the backlog of a queue is pulled that was there when it was taken over: slowly at first, so that its targets
and what is fresh are not flooded by all queues of a node that is gone at once."""

from __future__ import annotations

__all__ = ["Ramp"]

FROM = 50  # messages in the first pull, and in the first EVERY ms
EVERY = 50
DOUBLES = 200  # ms in which the pace doubles


class Ramp:
    """Of one owner of one queue; for the backlog only. It is over after `lasts` ms. Times are monotonic ms."""

    def __init__(self, lasts: int) -> None:
        self._lasts = lasts
        self._began: int | None = None  # the first pull that left something behind
        self.over = lasts == 0  # for good
        self._held_until = 0.0

    def look(self, now: int, most: int) -> int:
        """How many messages to look at in a pull, where `most` are looked at else."""
        return most if self.over else min(most, int(FROM * self._growth(now)))

    def holds_for(self, now: int) -> float:
        """The ms until the next pull; 0 if it may be made now."""
        return max(0.0, self._held_until - now)

    def see(self, now: int, count: int, *, more: bool) -> None:
        """A pull took so many; `more` is due behind them. A backlog that is gone ends it for good."""
        if self.over:
            return
        if self._began is None:
            self._began = now
        self.over = not more or now - self._began >= self._lasts
        self._held_until = 0.0 if self.over else now + count * EVERY / (FROM * self._growth(now))

    def _growth(self, now: int) -> float:
        return 1.0 if self._began is None else float(2 ** ((now - self._began) / DOUBLES))
