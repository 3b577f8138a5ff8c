"""The janitor: restores lost tickets, and removes old entries of the audit.

Scripts change pool and queue together, so delayq itself loses no ticket. But a restored backup or a manual edit of Redis may.
A check costs a few counts. Only a queue whose counts differ is read page by page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import structlog

from delayq.care.pools import lacks_tickets, repair_page
from delayq.store import commands
from delayq.store.connect.store import Store

PAGES = 4  # pages of a queue that one round reads
log = structlog.get_logger()


class Janitor:
    """Belongs to the node's thread. Entries of the audit are kept for `audit_window` ms."""

    def __init__(self, store: Store, queues: Sequence[int], audit_window: int) -> None:
        self._queues = queues
        self._store = store
        self._audit_window = audit_window
        self._to_look_at: deque[int] = deque()
        self._reading: tuple[int, str] | None = None  # a queue whose counts differ, and the cursor in its pool

    def look(self) -> None:
        """Begin a check of all queues, one in each round."""
        if not self._to_look_at:
            self._to_look_at.extend(self._queues)

    def go_on(self) -> None:
        """Check the next queue, or read the next pages of a queue whose counts differ; raises StoreError.

        If that fails, the queue waits for the next minute.
        """
        if self._reading is None and self._to_look_at:
            queue = self._to_look_at.popleft()
            self._reading = (queue, "0") if lacks_tickets(self._store, queue) else None
        reading, self._reading = self._reading, None
        for _ in range(PAGES):
            if reading is None:
                return
            queue, cursor = reading
            cursor, _, back, corrupt = repair_page(self._store, queue, cursor)
            reading = (queue, cursor) if cursor != "0" else None
            if back or corrupt:
                log.warning("repaired", queue=queue, restored=back, corrupt=corrupt)
        self._reading = reading

    def trim(self) -> None:
        """Remove old entries of the audit; raises StoreError. After an error they stay until the next time."""
        before = self._store.run(commands.redis_now()) - self._audit_window  # the time of an entry is that of Redis
        streams = [self._store.keys.audit, *(self._store.keys.queue(queue).audit for queue in self._queues)]
        self._store.run_many(commands.trim_audit(stream, before) for stream in streams)
