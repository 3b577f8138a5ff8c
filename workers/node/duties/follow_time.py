"""On a development server, a worker follows the moved time: it delivers what has fallen due and reports when that is done.

Other servers have no such thread and no such duties.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from delayq.clock import AdvancedClock, Clock, SystemClock
from delayq.config import Settings
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import ADVANCED

if TYPE_CHECKING:
    from workers.node.ownership import Ownership

__all__ = ["TimeFollower", "clock_for"]

RECEIVE: Final = 1.0  # s
PAUSE: Final = 0.2  # s
log = structlog.get_logger()


def clock_for(settings: Settings) -> Clock:
    """The clock for a worker. A server that does not answer is no development server: that one is there before its workers."""
    store = Store(settings.redis_url, timeout=settings.redis_timeout / 1000)
    try:
        advanced = store.run(commands.advanced())
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
    """One thread listens. The node's thread moves the clock in its first duty, `follow`, and reports in its last, `confirm`."""

    def __init__(
        self, store: Store, clock: AdvancedClock, node: str, look_now: Callable[[], None], ownership: Ownership
    ) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._look_now = look_now
        self._ownership = ownership
        self._wakes = Wakes(store.connect)
        self._wanted = clock.advanced
        self._moved_at = clock.precise()
        self._confirmed: int | None = None  # how far the node has reported that it has followed
        self._rounds = 0  # that have ended since the clock moved
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; again is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="follow-time", daemon=True)
            self._thread.start()

    def run(self) -> None:
        """Listen until stopped. Survives every exception."""
        while not self._stopped.is_set():
            try:
                self._wakes.connect([ADVANCED])
                while not self._stopped.is_set():
                    message = self._wakes.receive(RECEIVE)
                    if message is not None and message[1].isdigit():
                        self._want(int(message[1]))
                    else:  # just subscribed, or a second without news, in which a message may have been lost
                        self._want(self._store.run(commands.advanced()) or 0)
            except StoreError:
                self._stopped.wait(PAUSE)
            except Exception:
                log.exception("follow_time_failed")
                self._stopped.wait(PAUSE)
        self._wakes.close()

    def _want(self, advanced: int) -> None:
        if advanced > self._wanted:
            self._wanted = advanced
            self._look_now()

    def follow(self) -> None:
        """Move the clock of this process."""
        if self._wanted > self._clock.advanced:
            self._clock.advance_to(self._wanted)
            self._moved_at = self._clock.precise()
            self._rounds = 0

    @property
    def is_ahead_of_jobs(self) -> bool:
        """Whether a pull job has not run since the clock moved: it is not stuck, though its last tick seems long ago."""
        return any(job.ticked_at < self._moved_at - 1 for job in self._ownership.jobs.values())

    @property
    def is_behind(self) -> bool:
        """Whether the node has yet to report that it has followed: then the next round comes soon."""
        return self._confirmed != self._clock.advanced

    def confirm(self) -> None:
        """Report that the node has followed, once all duties and all pull jobs have nothing left to do; raises StoreError."""
        if not self.is_behind:
            return
        self._rounds += 1
        if self._rounds == 1:  # the duties before this one ran in a round that may have begun earlier
            for job in self._ownership.jobs.values():
                job.wake(None)
            self._look_now()
            return
        if self._ownership.is_settled(self._moved_at):
            self._store.run(commands.followed(self._node, self._clock.advanced))
            self._confirmed = self._clock.advanced

    def stop(self) -> None:
        """End the thread within a second; again is harmless."""
        self._stopped.set()

    def join(self, timeout_ms: int) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
