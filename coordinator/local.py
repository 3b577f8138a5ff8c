"""One machine: this node owns all queues, unless another node took them over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.epoch import Claim, draw_owner, next_epoch
from delayq.clock import Clock
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys

__all__ = ["LocalCoordinator"]

#: How long a queue is left to the node that took it over, before it is claimed back (ms).
HOLD = 15_000
ATTEMPTS = 5


class LocalCoordinator:
    """All queues for one node. The number of an epoch is the stored one + 1, so the node that came last owns.

    Two nodes may read the same number and reckon the same one from it. Their epochs differ all the same, by the number
    that each has drawn for itself, so Redis keeps one of them and fences the other. A node that finds itself fenced
    leaves the queue to the newer one for a while: two such nodes on one Redis take turns rather than fight, and lose
    nothing; for more than one node use ZooKeeper.
    """

    def __init__(self, store: Store, queues: Collection[int], era: int, clock: Clock) -> None:
        self._store = store
        self._queues = frozenset(queues)
        self._era = era
        self._owner = draw_owner()
        self._clock = clock
        self._held_off: dict[int, int] = {}

    def watch(self, changed: Callable[[], None]) -> None:
        """Nothing changes by itself but the end of a pause, which the node's next round sees."""

    def share(self, queues: Collection[int]) -> None:
        """The next look goes by these."""
        self._queues = frozenset(queues)

    def start(self) -> None:
        """Nothing to join."""

    def assigned(self) -> frozenset[int]:
        """All queues but those that another node took over a short while ago."""
        now = self._clock.monotonic()
        self._held_off = {queue: until for queue, until in self._held_off.items() if until > now}
        return self._queues - self._held_off.keys()

    def reason(self, queue: int) -> str:
        """Why a queue is not this node's."""
        return "another node has taken it over" if queue in self._queues else "there is no such queue any more"

    def claim(self, queue: int) -> Claim | None:
        """Begin an epoch above the stored one; raises StoreError."""
        keys = queue_keys(queue)
        for _ in range(ATTEMPTS):
            stored = self._store.run(commands.stored_epoch(keys))
            claimed = self._store.run(commands.claim(keys, next_epoch(stored, self._era, self._owner)))
            if claimed.ok:
                return Claim(queue, claimed.epoch, claimed.parked)
        return None

    def fenced(self, queue: int, epoch: str) -> None:
        """Leave the queue to the newer node for a while."""
        self._held_off[queue] = self._clock.monotonic() + HOLD

    def release(self, queue: int, epoch: str) -> None:
        """Nothing to give back: the next claim has a higher epoch."""

    def redis_reachable(self, reachable: bool, *, behind: bool = False) -> None:
        """There is nobody else to leave the queues to."""

    @property
    def connected(self) -> bool:
        """There is nothing to be connected to."""
        return True

    def stop(self) -> None:
        """Nothing to leave."""
