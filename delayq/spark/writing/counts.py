"""The outcomes of rows: each task counts them, and the driver sums up the counts that the tasks committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from delayq.domain.words import counted

#: The largest number of rejected rows in the error of a write without a folder for them.
EXAMPLES = 3


class Counts(msgspec.Struct, kw_only=True):
    """`read` is the sum of the others. `present` existed before, by an earlier attempt or run; `skipped` were past."""

    read: int = 0
    scheduled: int = 0
    present: int = 0
    skipped: int = 0
    rejected: dict[str, int] = {}
    examples: list[str] = []

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Self:
        """The sum."""
        whole = cls()
        for part in parts:
            whole.read += part.read
            whole.scheduled += part.scheduled
            whole.present += part.present
            whole.skipped += part.skipped
            for reason, count in part.rejected.items():
                whole.rejected[reason] = whole.rejected.get(reason, 0) + count
            whole.examples += part.examples[: EXAMPLES - len(whole.examples)]
        return whole

    def reject(self, reason: str, detail: str) -> None:
        """Count a rejected row."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(detail)

    @property
    def all_rejected(self) -> int:
        """How many rows were rejected, for whatever reason."""
        return sum(self.rejected.values())

    @property
    def sentence(self) -> str:
        """Return all counts in one sentence."""
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        skipped = f", {self.skipped} past and skipped" if self.skipped else ""
        return (
            f"{counted(self.read, 'row', 'rows')} read: {self.scheduled} scheduled, {self.present} already there{skipped}, "
            f"{self.all_rejected} rejected" + (f" ({reasons})" if reasons else "")
        )
