"""Whether all messages are accounted for. Of each queue, as its counters say:

scheduled = delivered + cancelled + cancelled in flight + discarded + written off + those that are in the pool

Every script changes counters and pool together, so a difference is never delayq's own doing: a hand in Redis, or data
that came from elsewhere. A whole queue that was deleted takes its counters with it; that is seen only by a process that
remembers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.client.findings.queues import unaccounted
from delayq.store.commands import QueueStats

__all__ = ["GONE", "Accounts", "Found"]

#: What it is about if queues are others than before: only a process that remembers them can tell.
GONE: Final = "gone"


class Found(msgspec.Struct, frozen=True):
    """What a look has found: `lost`, by what it is about, holds until it is mended."""

    missing: int
    lost: dict[str, str]


class Accounts:
    """Compares the figures of the queues with each other, and looks whether they are the queues that they were."""

    def __init__(self) -> None:
        self._born: dict[int, str] = {}

    def look(self, stats: Sequence[QueueStats]) -> Found:
        """What is wrong with the queues, whose figures were just read."""
        lost: dict[str, str] = {}
        gone: list[int] = []
        for one in stats:
            queue = one.queue
            born = self._born.setdefault(queue, one.born) if one.born else self._born.get(queue)
            if born != one.born:
                gone.append(queue)
            if sentence := unaccounted(one):
                lost[f"missing {queue}"] = sentence
        if gone:
            which = f"queue {gone[0]} is" if len(gone) == 1 else f"{len(gone)} queues ({gone[0]} and others) are"
            lost[GONE] = (
                f"{which} not what this process has seen before (FLUSHALL, DEL, another Redis), and what was there is "
                "gone: restore a backup, or start this process again to go on without"
            )
        return Found(sum(one.missing for one in stats if one.missing > 0), lost)
