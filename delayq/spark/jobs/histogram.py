"""The number of messages by due time, in steps as fine as a bounded number of them allows."""

from __future__ import annotations

from typing import Final

import msgspec

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
#: Widths of steps in ms; each is a multiple of those before it, so that fine counts can be added up.
WIDTHS: Final = (
    _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 10 * _DAY, 100 * _DAY, 1_000 * _DAY,
    10_000 * _DAY, 200_000 * _DAY,
)  # fmt: skip
MOST: Final = 1_000
SHOWN: Final = 30


class DueHistogram(msgspec.Struct):
    """Messages by the step of their due time, numbered from the epoch on."""

    width: int = WIDTHS[0]
    counts: dict[int, int] = {}

    def add(self, due: int, count: int = 1) -> None:
        """Count messages that are due at a time (Unix ms)."""
        step = due // self.width
        self.counts[step] = self.counts.get(step, 0) + count
        while len(self.counts) > MOST:
            self._widen()

    def merge(self, other: DueHistogram) -> None:
        """Add another histogram."""
        while self.width < other.width:
            self._widen()
        for step, count in other.counts.items():
            self.add(step * other.width, count)

    def _widen(self) -> None:
        before, self.width = self.width, WIDTHS[WIDTHS.index(self.width) + 1]
        finer, self.counts = self.counts, {}
        for step, count in finer.items():
            wide = step * before // self.width
            self.counts[wide] = self.counts.get(wide, 0) + count

    def rows(self) -> list[tuple[int, int]]:
        """Return the beginning (Unix ms) of each step and its count, from the first to the last; at most 30."""
        shown = DueHistogram(self.width, dict(self.counts))
        while shown.counts and max(shown.counts) - min(shown.counts) >= SHOWN:
            shown._widen()
        steps = range(min(shown.counts), max(shown.counts) + 1) if shown.counts else range(0)
        return [(step * shown.width, shown.counts.get(step, 0)) for step in steps]
