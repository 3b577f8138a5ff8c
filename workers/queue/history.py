"""Whether Redis went back in time: it lost its last changes, though it is the same Redis."""

from __future__ import annotations

import threading
from typing import Final

import structlog

__all__ = ["History"]

#: What a pull tells the counts of.
NAMES: Final = ("scheduled", "forwarded", "cancelled")
log = structlog.get_logger()


class History:
    """The counters of each queue as its pulls told them last; they never go back by themselves.

    They ride in every answer, of which an owner gets at least one a second: what is remembered is hardly older than
    what a server that dies may lose, and the first answer after it is compared. Threads may share it: a queue has one
    pull job at a time, which reads its answers in order.
    """

    def __init__(self) -> None:
        self.went_back = 0
        self._counted: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def see(self, queue: int, counted: tuple[int, ...]) -> None:
        """The counters of a queue have come with an answer."""
        before = self._counted.get(queue, counted)
        self._counted[queue] = counted
        lost = [
            f"from {old} {name} messages to {new}"
            for name, old, new in zip(NAMES, before, counted, strict=True)
            if new < old
        ]
        if lost:
            with self._lock:
                self.went_back += 1
            text = f"queue {queue} went back {' and '.join(lost)}: its Redis has lost its last changes"
            log.error("went_back", text=f"{text} (killed or cut off with a slow disk, a fail-over, an older backup)")
