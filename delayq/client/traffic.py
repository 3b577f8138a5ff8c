"""What the lines of nodes report of the last ten minutes: how many messages were delivered, and how late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from delayq.nodes import LATENESS, RECENT_SLOTS, RECENT_STEP, NodeLine, Recent
from delayq.telemetry.histogram import Histogram

__all__ = ["delivered", "last_slots", "whole"]


def last_slots(now: int) -> range:
    """The numbers of the slots of the last ten minutes that are over at `now` (Unix ms)."""
    last = now // RECENT_STEP - 1
    return range(last - RECENT_SLOTS + 1, last + 1)


def delivered(nodes: Iterable[NodeLine], now: int) -> dict[int, Histogram]:
    """How many messages all nodes together delivered by lateness, for each slot that at least one of them reports."""
    wanted = last_slots(now)
    slots: dict[int, Histogram] = {}
    for line in nodes:
        for number, counts in _numbered(line.recent) if line.recent is not None else ():
            if number in wanted:
                _add(slots.setdefault(number, Histogram(LATENESS)), counts)
    return slots


def whole(slots: Mapping[int, Histogram]) -> Histogram:
    """All slots together."""
    total = Histogram(LATENESS)
    for one in slots.values():
        _add(total, one.counts)
    return total


def _numbered(recent: Recent) -> Iterable[tuple[int, Sequence[int]]]:
    return enumerate(recent.counts, recent.last - len(recent.counts) + 1)


def _add(histogram: Histogram, counts: Sequence[int]) -> None:
    for place, count in enumerate(counts[: len(histogram.counts)]):
        histogram.counts[place] += count
