"""How many messages were delivered in the last ten minutes, and how late, for the node's line."""

from __future__ import annotations

from collections import deque

from delayq.nodes import RECENT_SLOTS, RECENT_STEP, Recent
from delayq.telemetry.histogram import Histogram

__all__ = ["RecentCounts"]


class RecentCounts:
    """Reads a histogram that others fill, so counting costs nothing. Belongs to the node's thread."""

    def __init__(self, lateness: Histogram) -> None:
        self._lateness = lateness
        self._seen = list(lateness.counts)
        self._slots: deque[tuple[int, ...]] = deque(maxlen=RECENT_SLOTS)
        self._slot: int | None = None  # the one that is being filled

    def tick(self, now: int) -> None:
        """Close the slots that are over at `now`, by the clock of Redis."""
        slot = now // RECENT_STEP
        if self._slot is not None and slot > self._slot:
            counts = list(self._lateness.counts)
            self._slots.append(_without_end([new - old for new, old in zip(counts, self._seen, strict=True)]))
            self._slots.extend([()] * min(slot - self._slot - 1, RECENT_SLOTS))
            self._seen = counts
        elif self._slot is not None and slot < self._slot:  # the clock went back: the slots have no place any more
            self._slots.clear()
        self._slot = slot

    def told(self) -> Recent | None:
        """The slots that are over; None before the first one is."""
        return Recent(self._slot - 1, tuple(self._slots)) if self._slot is not None and self._slots else None


def _without_end(counts: list[int]) -> tuple[int, ...]:
    while counts and not counts[-1]:
        counts.pop()
    return tuple(counts)
