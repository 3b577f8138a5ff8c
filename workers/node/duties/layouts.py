"""Follows the list of layouts. New queues get an owner within seconds, and an old layout is removed once its queues are empty.

Each node does this for itself. Several nodes may safely do the same at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from delayq.store import commands
from delayq.store.commands import Retention
from delayq.store.connect.store import Store
from delayq.store.keys import Layout

AT_ONCE = 64
log = structlog.get_logger()


def numbers_of(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The numbers of all queues."""
    return tuple(queue for layout in layouts for queue in layout.numbers)


class LayoutWatch:
    """Belongs to the node's thread. `changed` is called with the numbers of all queues whenever they change."""

    def __init__(
        self,
        store: Store,
        layouts: Sequence[Layout],
        retention: Retention,
        changed: Callable[[Sequence[int]], None],
    ) -> None:
        self._store = store
        self._layouts = tuple(layouts)
        self._retention = retention
        self._changed = changed
        self._done: dict[Layout, int] = {}  # how many of its first queues are drained, permanently

    def retire(self) -> None:
        """Remove each old layout whose queues are empty; raises StoreError."""
        for layout in self._layouts[:-1]:
            if self._is_drained(layout):
                self._drop(layout)

    def take(self, listed: Sequence[Layout]) -> None:
        """Use these layouts, which Redis lists now."""
        if not listed or tuple(listed) == self._layouts:  # a Redis that lost its data lists none
            return
        log.info("layouts", queues=[layout.queues for layout in listed])
        self._layouts = tuple(listed)
        self._changed(numbers_of(listed))

    def _is_drained(self, layout: Layout) -> bool:
        """Whether all queues of a layout are closed and empty, and remember no id. A drained queue is not checked again."""
        done = self._done.get(layout, 0)
        step = 1  # usually the first queue is not drained
        while done < layout.queues:
            some = layout.numbers[done : done + step]
            answers = self._store.run_many(
                commands.is_drained(self._store.keys.queue(queue), retention=self._retention) for queue in some
            )
            for answer in answers:
                if answer is not True:  # it may be an error: check again later
                    self._done[layout] = done
                    return False
                done += 1
            step = AT_ONCE
        return True

    def _drop(self, layout: Layout) -> None:
        rest = tuple(one for one in self._layouts if one != layout)
        listed = self._store.run(commands.set_layouts(self._store.keys, self._layouts, rest))
        if listed == rest:
            log.info("layout_dropped", queues=layout.queues, first=layout.first)
        self._done.pop(layout, None)
        self.take(listed)
