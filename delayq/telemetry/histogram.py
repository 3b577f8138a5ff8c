"""Counts in buckets, as plain numbers: counting on a hot path costs a look-up and no lock."""

from __future__ import annotations

import math
from bisect import bisect_left


class Histogram:
    """Counts in buckets; `bounds` are their upper ends."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value this many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def quantile(self, share: float) -> float | None:
        """The bound of this share of the values, as exact as the buckets; None without values.

        It is infinite if it is above all bounds, because the end of the last bucket would look like a measurement.
        """
        wanted = share * sum(self.counts)
        if not wanted:
            return None
        below, low = 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if below + count >= wanted:
                return low + (bound - low) * (wanted - below) / count
            below, low = below + count, bound
        return math.inf

    def buckets(self) -> list[tuple[str, float]]:
        """Return the upper bounds with the counts of values up to them, as Prometheus expects."""
        rows: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            rows.append((bound, below))
        return rows
