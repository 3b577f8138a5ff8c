"""Reads the policies when they have changed, ends pauses whose time is over and limits behind which nothing is left of what was
paused, and sees to it that no queue is ahead of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.patterns import compiled, overlap
from delayq.policies import MAKER, Limit, Policies, number_of
from delayq.routes import Routes
from delayq.store import commands
from delayq.store.commands import Change, Glance, QueueStats
from delayq.store.connect.store import Store
from delayq.store.keys import ParkedSet, queue_keys
from workers.queue.symptoms import History
from workers.queue.tenure import Book

__all__ = ["PolicyWatch"]

#: ms between two looks at whether a limit is over.
LOOK_EVERY: Final = 2_000
log = structlog.get_logger()


class PolicyWatch:
    """`changed` is called when the `book` has other ones; `tick` is called by the node's thread.

    What it does may be done twice, or by several nodes at once.
    """

    def __init__(
        self, store: Store, book: Book, history: History, clock: Clock, routes: Routes, changed: Callable[[], None]
    ) -> None:
        self.queues: Sequence[int] = ()  # of all layouts
        self._clock = clock
        self._look_at = 0  # monotonic ms
        self._store = store
        self._book = book
        self._history = history
        self._routes = routes
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
        """The ends of limits that hold nothing, and behind which nothing may come that was paused when they were set.

        That is whatever was due by then and is still in its queue, as nobody may have pulled it while there were no workers, or
        is parked for the target, or behind others of its ordering key.
        """
        now = self._clock.monotonic()
        if not current.limits or now < self._look_at:
            return []
        self._look_at = now + LOOK_EVERY
        looks = [commands.stats(queue_keys(queue)) for queue in self.queues]
        found = self._store.run_all(looks)
        over = [limit for limit in current.limits.values() if not _lasts(limit, found)]
        parked = {
            (one.queue, name): {limit for limit in over if self._leads(name, limit)}
            for one in found
            for name in (one.parked_sets if over else ())
        }
        asked = [place for place, limits in parked.items() if limits]
        dues = self._store.run_all(commands.lowest_due(queue_keys(queue).parked(name)) for queue, name in asked)
        waiting = {
            limit
            for place, due in zip(asked, dues, strict=True)
            for limit in parked[place]
            if due is not None and due <= limit.since
        }
        over = [limit for limit in over if limit not in waiting]
        if over:
            again = self._store.run_all(looks)  # last: what has left a set meanwhile is in its queue
            over = [limit for limit in over if not _lasts(limit, again)]
        return [Change(limit.field, "", limit.stored) for limit in over]

    def _leads(self, name: str, limit: Limit) -> bool:
        """Whether what is parked under this name may be of a topic that is limited so."""
        waits_for = ParkedSet.route(name)
        return any(route.name == waits_for and overlap(route.match, limit.match) for route in self._routes.table)


def _lasts(limit: Limit, found: Iterable[QueueStats]) -> bool:
    """Whether a queue holds something of it, or has not come past what was due when it was set."""
    covers = compiled(limit.match).match
    return any(
        (one.head_due is not None and one.head_due <= limit.since) or any(covers(topic) for topic in one.held_topics)
        for one in found
    )
