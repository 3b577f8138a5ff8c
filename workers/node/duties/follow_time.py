"""On a development server, a worker follows moved time. It delivers all due messages, then reports that it is done.

Workers of other servers have none of these duties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from delayq.base.clock import AdvancedClock, Clock, SystemClock
from delayq.base.errors import StoreError, WrongRedis
from delayq.config import Settings
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import Keys

if TYPE_CHECKING:
    from workers.node.ownership import Ownership


def clock_for(settings: Settings) -> Clock:
    """Return the clock for a worker. A development server answers, because it starts before its workers."""
    store = Store(settings.redis_url, keys=Keys(settings.namespace), timeout=settings.redis_timeout / 1000)
    try:
        advanced = store.run(commands.advanced(store.keys))
    except WrongRedis:
        raise
    except StoreError:
        return SystemClock()
    finally:
        store.close()
    if advanced is None:
        return SystemClock()
    clock = AdvancedClock()
    clock.advance_to(advanced)
    return clock


class TimeFollower:
    """Belongs to the node's thread, except for `note`. A round begins with `follow` and ends with `look` and `confirm`."""

    def __init__(
        self, store: Store, clock: AdvancedClock, node: str, look_now: Callable[[], None], ownership: Ownership
    ) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._look_now = look_now
        self._ownership = ownership
        self._wanted = clock.advanced
        self._moved_at = clock.precise()
        self._confirmed: int | None = None  # the move (ms) that the node has reported as done
        self._rounds = 0  # rounds that have ended since the clock moved

    def note(self, advanced: int) -> None:
        """Note that the server's time is so many ms ahead, and wake the node; from any thread."""
        if advanced > self._wanted:
            self._wanted = advanced
            self._look_now()

    def look(self) -> None:
        """Read by how many ms the server's time is ahead; raises StoreError."""
        self.note(self._store.run(commands.advanced(self._store.keys)) or 0)

    def follow(self) -> None:
        """Move the clock of this process."""
        if self._wanted > self._clock.advanced:
            self._clock.advance_to(self._wanted)
            self._moved_at = self._clock.precise()
            self._rounds = 0

    @property
    def is_ahead_of_jobs(self) -> bool:
        """Whether a pull job has not run since the clock moved. Its last tick seems long ago, but it is not stuck."""
        return any(job.ticked_at < self._moved_at - 1 for job in self._ownership.jobs.values())

    @property
    def is_behind(self) -> bool:
        """Whether the node has not reported the last move as done. Then the next round comes soon."""
        return self._confirmed != self._clock.advanced

    def confirm(self) -> None:
        """Report the move as done once all duties and all pull jobs have nothing left to do; raises StoreError."""
        if not self.is_behind:
            return
        self._rounds += 1
        if self._rounds == 1:  # this round may have begun before the clock moved
            for job in self._ownership.jobs.values():
                job.wake(None)
            self._look_now()
            return
        if self._ownership.is_settled(self._moved_at):
            self._store.run(commands.followed(self._store.keys, self._node, self._clock.advanced))
            self._confirmed = self._clock.advanced
