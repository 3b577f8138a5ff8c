"""Undo a backfill: read every queue, and cancel the messages of one run page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from delayq.client.audit import By, entry_of, name_of, one_act
from delayq.client.plan import Context
from delayq.domain.message import RUN_PROPERTY
from delayq.store import commands
from delayq.store.commands import plain
from delayq.store.connect.store import Store
from delayq.store.keys import QueueKeys

#: The number of messages of the first read, at least and at most, and the bytes of records of a read. The server reads
#: them all at once, and does nothing else meanwhile.
LOOK: Final = (8, 1_000)
LOOK_BYTES: Final = 1_000_000
#: Ids in one cancel.
CHUNK: Final = 500


class Undone(msgspec.Struct, frozen=True):
    """The outcomes of the messages of a run.

    `too_late` messages were due, or had been in flight before: they are removed, but may have been delivered. `dead`
    ones stay.
    """

    cancelled: int = 0
    too_late: int = 0
    dead: int = 0

    def __add__(self, other: Undone) -> Undone:
        return Undone(self.cancelled + other.cancelled, self.too_late + other.too_late, self.dead + other.dead)


class UndoProgress(msgspec.Struct, frozen=True):
    """The progress: the queue, its messages that were read and their approximate number, and the sum."""

    queue: int
    looked: int
    total: int
    undone: Undone


def undo(store: Store, context: Context, run: str, by: By | None = None) -> Iterator[UndoProgress]:
    """Cancel the pending messages of a run, page by page. An interrupted undo can be repeated. Raises StoreError.

    Messages that were certainly cancelled may be scheduled again at once: the corrected run needs no option.
    """
    by = one_act(by)
    entry = entry_of(by and msgspec.structs.replace(by, run=run), "undoBackfill", context.retention)
    undone = Undone()
    left = _queues(store, context, -1)
    while left:
        for queue in left:
            for progress in _undo_queue(store, context, queue, run, entry, by):
                undone += progress.undone
                yield msgspec.structs.replace(progress, undone=undone)
        left = _queues(store, context, left[-1])  # queues of a layout that was listed meanwhile


def _queues(store: Store, context: Context, behind: int) -> list[int]:
    listed = store.run(commands.layouts(store.keys))
    context.layouts.take(listed)
    return [queue for queue in context.layouts.queues if queue > behind]


def _undo_queue(
    store: Store, context: Context, queue: int, run: str, entry: str, by: By | None
) -> Iterator[UndoProgress]:
    keys = store.keys.queue(queue)
    total = store.run(plain("HLEN", keys.pool, read=int))
    looked, look, cursor = 0, LOOK[0], "0"
    while True:
        found = store.run(commands.find_by_property(keys, cursor, look, RUN_PROPERTY, run))
        undone = Undone()
        for first in range(0, len(found.ids), CHUNK):
            undone += _cancel(store, context, keys, found.ids[first : first + CHUNK], entry, by)
        cursor, looked = found.cursor, looked + found.looked
        done = cursor == "0"
        yield UndoProgress(queue, looked, looked if done else max(total, looked), undone)
        if done:
            return
        if found.looked:  # as many messages next time as these bytes allow
            look = min(max(LOOK_BYTES * found.looked // max(1, found.size), LOOK[0]), LOOK[1], 4 * look)


def _cancel(store: Store, context: Context, keys: QueueKeys, ids: list[str], entry: str, by: By | None) -> Undone:
    results: list[Any] = store.run(
        commands.cancel(keys, ids, free=True, entry=entry, by=name_of(by), retention=context.retention)
    )
    # A message that ended since it was found is delivered or gone: it is too late as well.
    cancelled, dead = results.count("cancelled"), results.count("dead")
    return Undone(cancelled, len(results) - cancelled - dead, dead)
