"""Looks now and then whether every message has its ticket, and gives back those that were lost.

Scripts change pool and queue together, so nothing is lost by delayq itself; a restored backup or a hand in Redis can
do it. A look costs a few counts; only a queue whose counts disagree is read through, a few pages at a time. Once an hour it
lets go of what the audit has had for long enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from delayq.care.pools import lacks_tickets, repair_page
from delayq.clock import Clock
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import AUDIT, queue_keys

__all__ = ["Janitor"]

EVERY = 60_000  # ms between two looks at the same queue
PAGES = 4  # a tick
TRIM_EVERY = 3_600_000  # ms
log = structlog.get_logger()


class Janitor:
    """One queue after the other; `tick` is called by the node's thread. The audit is kept for so many ms."""

    def __init__(self, store: Store, queues: Sequence[int], clock: Clock, audit_window: int) -> None:
        self._store = store
        self.queues = queues
        self._clock = clock
        self._place = 0
        self._queue = queues[0]
        self._cursor: str | None = None  # None: not reading through a queue
        self._next = clock.monotonic() + EVERY // len(queues)
        self._audit_window = audit_window
        self._trim_at = clock.monotonic() + TRIM_EVERY

    def tick(self) -> None:
        """Look at the next queue if it is time; raises StoreError."""
        self._trim()
        if self._cursor is None:
            if self._clock.monotonic() < self._next:
                return
            self._next = self._clock.monotonic() + EVERY // len(self.queues)
            self._place = (self._place + 1) % len(self.queues)
            self._queue = self.queues[self._place]
            if lacks_tickets(self._store, self._queue):
                self._cursor = "0"
        for _ in range(PAGES):
            if self._cursor is None:
                return
            cursor, _, back, corrupt = repair_page(self._store, self._queue, self._cursor)
            self._cursor = cursor if cursor != "0" else None
            if back or corrupt:
                log.warning("repaired", queue=self._queue, restored=back, corrupt=corrupt)

    def _trim(self) -> None:
        """What cannot be trimmed is left for the next time: a stream without entries goes by itself, too."""
        if self._clock.monotonic() < self._trim_at:
            return
        self._trim_at = self._clock.monotonic() + TRIM_EVERY
        before = self._store.run(commands.redis_now()) - self._audit_window  # entries have the time of Redis
        streams = [AUDIT, *(queue_keys(queue).audit for queue in self.queues)]
        self._store.run_many(commands.trim_audit(stream, before) for stream in streams)
