"""The check that all messages are accounted for. For each queue, by its counters:

scheduled = delivered + cancelled + cancelled in flight + discarded + written off + messages in the pool

Every script changes counters and pool together, so delayq itself never causes a difference. Its cause is a manual
change in Redis, or data from elsewhere. A deleted queue loses its counters too; only a process that remembers them
detects that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from delayq.client.findings.queues import unaccounted
from delayq.store.commands import QueueStats

#: The subject of a finding about other queues than before: only a process that remembers them can detect that.
GONE: Final = "gone"


class Found(msgspec.Struct, frozen=True):
    """The result of a check. `lost`, by its subject, lasts until it is corrected."""

    missing: int
    lost: dict[str, str]


class Accounts:
    """Compares the figures of the queues with each other, and with those of earlier checks."""

    def __init__(self) -> None:
        self._born: dict[int, str] = {}

    def look(self, stats: Sequence[QueueStats]) -> Found:
        """Return the problems of the queues whose figures were just read."""
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
                f"{which} not what this process has seen before (FLUSHALL, DEL, another Redis), and their "
                "messages are gone. Restore a backup, or restart this process to continue without them"
            )
        return Found(sum(one.missing for one in stats if one.missing > 0), lost)
