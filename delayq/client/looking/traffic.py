"""The deliveries of the last ten minutes and their lateness, as nodes report them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from delayq.domain.nodes import LATENESS, RECENT_SLOTS, RECENT_STEP, NodeLine, Recent
from delayq.telemetry.histogram import Histogram

#: The time (s) within which 99 of 100 messages should be delivered. It is one of the bounds of LATENESS.
IN_TIME: Final = 1.0
#: A slot shows the workers' limit if at least this many messages were delivered in it, and this share of them late. A few
#: late messages among others in time were retried or paused.
BUSY: Final = 100
BUSY_SHARE: Final = 0.8


def last_slots(now: int) -> range:
    """The numbers of the slots of the last ten minutes that are over at `now` (Unix ms)."""
    last = now // RECENT_STEP - 1
    return range(last - RECENT_SLOTS + 1, last + 1)


def slots_of(nodes: Iterable[NodeLine], now: int) -> dict[int, Histogram]:
    """The deliveries of all nodes by lateness, for each slot that at least one node reports."""
    wanted = last_slots(now)
    slots: dict[int, Histogram] = {}
    for line in nodes:
        for number, counts in _numbered(line.recent) if line.recent is not None else ():
            if number in wanted:
                _add(slots.setdefault(number, Histogram(LATENESS)), counts)
    return slots


def total_of(slots: Mapping[int, Histogram]) -> Histogram:
    """Add all slots up."""
    total = Histogram(LATENESS)
    for one in slots.values():
        _add(total, one.counts)
    return total


def was_busy(slot: Histogram) -> bool:
    """Whether messages waited for each other throughout a slot, so that its rate is the workers' limit."""
    total = sum(slot.counts)
    return total >= BUSY and late_of(slot) >= BUSY_SHARE * total


def late_of(counted: Histogram) -> int:
    """The number of messages that were delivered later than IN_TIME."""
    return sum(counted.counts[LATENESS.index(IN_TIME) + 1 :])


def _numbered(recent: Recent) -> Iterable[tuple[int, Sequence[int]]]:
    return enumerate(recent.counts, recent.last - len(recent.counts) + 1)


def _add(histogram: Histogram, counts: Sequence[int]) -> None:
    for place, count in enumerate(counts[: len(histogram.counts)]):
        histogram.counts[place] += count
