"""Reads the policies when they have changed, ends pauses whose time is over and limits that hold nothing any more, and sees to
it that no queue is ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.patterns import compiled
from delayq.policies import MAKER, Policies, number_of
from delayq.store import commands
from delayq.store.commands import HELD_SET, Change, Glance
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys
from workers.queue.symptoms import History
from workers.queue.tenure import Book

__all__ = ["PolicyWatch"]

#: ms between two looks at what is held, while a limit lasts until nothing is.
LOOK_EVERY: Final = 2_000
log = structlog.get_logger()


class PolicyWatch:
    """`changed` is called when the `book` has other ones; `tick` is called by the node's thread.

    What it does may be done twice, or by several nodes at once.
    """

    def __init__(self, store: Store, book: Book, history: History, clock: Clock, changed: Callable[[], None]) -> None:
        self.queues: Sequence[int] = ()  # of all layouts
        self._clock = clock
        self._look_at = 0  # monotonic ms
        self._store = store
        self._book = book
        self._history = history
        self._changed = changed

    def tick(self, glance: Glance | None, now: int) -> None:
        """Read them if a `glance` or a queue tells another version; `now` is Redis's time.

        Where their server cannot be reached, or takes no changes, they stay as they are: the node has other things to do.
        """
        try:
            self._tick(glance, now)
        except StoreError as error:
            log.warning("redis_trouble", error=str(error))

    def _tick(self, glance: Glance | None, now: int) -> None:
        current = self._book.current
        ahead, self._book.ahead = self._book.ahead, ""
        ended = [
            Change(f"pause:{match}", "", pause.stored)
            for match, pause in current.pauses.items()
            if pause.until is not None and now >= pause.until
        ] + self._limits_over(current)
        if ended:
            self._store.run(commands.set_policies(ended, maker=MAKER))
        elif ahead <= current.version and (glance is None or glance.policies == current.version):
            return
        read = Policies.read(self._store.run(commands.policies()))
        if read.version < ahead:
            # The server of the policies has lost their last changes, and that of a queue has not: nobody could pull from it.
            self._history.tell(f"the policies went back to version {read.number}, and a queue has {number_of(ahead)}")
            self._store.run(commands.set_policies((), maker=MAKER, beyond=ahead))
            read = Policies.read(self._store.run(commands.policies()))
        elif read.version < current.version:
            self._history.tell(f"the policies went back from version {current.number} to {read.number}")
        if read.version != current.version:
            self._book.current = read
            log.info("policies", version=read.number, paused=list(read.paused))
            self._changed()

    def _limits_over(self, current: Policies) -> list[Change]:
        """The ends of limits under which no queue holds anything any more: they last no longer."""
        now = self._clock.monotonic()
        if not current.limits or now < self._look_at:
            return []
        self._look_at = now + LOOK_EVERY
        names = self._store.run_all(commands.parked_names(queue_keys(queue)) for queue in self.queues)
        held = {name.removeprefix(HELD_SET) for some in names for name in some if name.startswith(HELD_SET)}
        return [
            Change(f"limit:{match}", "", limit.stored)
            for match, limit in current.limits.items()
            if not any(compiled(match).match(topic) for topic in held)
        ]
