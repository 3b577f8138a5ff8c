"""The recent counts in a node's record: counters of the last 15 minutes, and how late messages of the last ten minutes were.

Both compare totals that others count with earlier values, so they add no cost to a message. They belong to the node's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from delayq.domain.nodes import LATELY, RECENT_SLOTS, RECENT_STEP, Lately, Recent
from delayq.telemetry.histogram import Histogram


class RecentCounters:
    """The counters of the last 15 minutes. `counted` returns their values since the node began, which never decrease."""

    def __init__(self, counted: Callable[[], Lately]) -> None:
        self._counted = counted
        self._earlier = deque([Lately()], maxlen=LATELY // 60_000 + 1)  # the values of each minute

    def tick(self) -> None:
        """Keep the values of the counters; called once a minute."""
        self._earlier.append(self._counted())

    def sum(self) -> Lately:
        """The counts of the last 15 minutes, or since the node began."""
        old, new = msgspec.structs.astuple(self._earlier[0]), msgspec.structs.astuple(self._counted())
        return Lately(*(after - before for before, after in zip(old, new, strict=True)))


class RecentLateness:
    """The number of delivered messages in slots of ten seconds, by how late they were."""

    def __init__(self, lateness: Histogram) -> None:
        self._lateness = lateness
        self._earlier = list(lateness.counts)  # the values when the current slot began
        self._slots: deque[tuple[int, ...]] = deque(maxlen=RECENT_SLOTS)
        self._slot: int | None = None  # the current one

    def tick(self, now: int) -> None:
        """Close the slots that are over at `now`, by the clock of Redis."""
        slot = now // RECENT_STEP
        if self._slot is not None and slot > self._slot:
            counts = list(self._lateness.counts)
            self._slots.append(_without_end([new - old for new, old in zip(counts, self._earlier, strict=True)]))
            self._slots.extend([()] * min(slot - self._slot - 1, RECENT_SLOTS))
            self._earlier = counts
        elif self._slot is not None and slot < self._slot:  # the clock went back, so the slots have no place any more
            self._slots.clear()
        self._slot = slot

    def slots(self) -> Recent | None:
        """The slots that are over; None before the first one is."""
        return Recent(self._slot - 1, tuple(self._slots)) if self._slot is not None and self._slots else None


def _without_end(counts: list[int]) -> tuple[int, ...]:
    while counts and not counts[-1]:
        counts.pop()
    return tuple(counts)
