"""The coordinator of a single node, which owns all queues unless another node takes them over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from coordinator.epoch import Claim, draw_owner, next_epoch
from delayq.base.clock import Clock
from delayq.store import commands
from delayq.store.connect.store import Store

#: ms until this node claims a queue back from the node that took it over.
HOLD = 15_000
ATTEMPTS = 5


class LocalCoordinator:
    """Gives one node all queues. The number of an epoch is the stored number + 1, so the node that started last is the owner.

    Two nodes may read the same number and compute the same next one. Their epochs still differ, because each node has
    drawn a random number. So Redis accepts one of them and fences the other. A fenced node leaves the queue to the
    newer node for a while. So two such nodes on one Redis take turns and lose nothing. Use ZooKeeper for several nodes.
    """

    def __init__(self, store: Store, queues: Collection[int], era: int, clock: Clock) -> None:
        self._store = store
        self._queues = frozenset(queues)
        self._era = era
        self._owner = draw_owner()
        self._clock = clock
        self._held_off: dict[int, int] = {}

    def watch(self, changed: Callable[[], None]) -> None:
        """Only the end of a hold changes the answers, and the node asks again in each round."""

    def share(self, queues: Collection[int]) -> None:
        """Use this list of all queues."""
        self._queues = frozenset(queues)

    def start(self) -> None:
        """Do nothing: a single node joins no group."""

    def assigned(self) -> frozenset[int]:
        """All queues, except those that another node took over less than HOLD ms ago."""
        now = self._clock.monotonic()
        self._held_off = {queue: until for queue, until in self._held_off.items() if until > now}
        return self._queues - self._held_off.keys()

    def reason(self, queue: int) -> str:
        """Why a queue is not this node's."""
        return "another node has taken it over" if queue in self._queues else "the queue no longer exists"

    def claim(self, queue: int) -> Claim | None:
        """Begin an epoch above the stored one; raises StoreError."""
        keys = self._store.keys.queue(queue)
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
        """Do nothing: the next claim has a higher epoch."""

    def redis_reachable(self, reachable: bool, *, behind: bool = False) -> None:
        """Do nothing: there is no other node for the queues."""

    @property
    def connected(self) -> bool:
        """True: there is no server to connect to."""
        return True

    def stop(self) -> None:
        """Do nothing: a single node leaves no group."""
