"""The owners of the queues.

Redis decides (the highest epoch wins); a coordinator only spreads the work. `local` gives one node all queues,
`zookeeper` spreads them over all live nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from coordinator.epoch import Claim, epoch_text
from coordinator.errors import CoordinatorError, CoordinatorRefused
from coordinator.local import LocalCoordinator
from delayq.base.clock import Clock
from delayq.config import Settings
from delayq.store import commands
from delayq.store.commands import Meta
from delayq.store.connect.store import Store

__all__ = [
    "REDIS_AWAY",
    "Claim",
    "Coordinator",
    "CoordinatorError",
    "CoordinatorRefused",
    "LocalCoordinator",
    "coordinator_for",
    "epoch_text",
]

#: After so many ms without Redis, or with a clock that is far behind, a node's queues go to other nodes.
REDIS_AWAY: Final = 5_000


class Coordinator(Protocol):
    """Decides which queues this node should own, and under which epoch.

    `start`, `claim` and `release` may raise CoordinatorError when the coordinator is away. Call them again then.
    """

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this, from any thread, whenever `assigned` may have changed or a claim may succeed. Set it before `start`."""

    def share(self, queues: Collection[int]) -> None:
        """Use this list of all queues from now on."""

    def start(self) -> None:
        """Join; raises StoreUnavailable or CoordinatorError if that is not possible now. Call it again then."""

    def assigned(self) -> frozenset[int]:
        """The queues that this node should own now."""

    def reason(self, queue: int) -> str:
        """Why a queue is not assigned to this node, in words for the log."""

    def claim(self, queue: int) -> Claim | None:
        """Begin owning a queue; None if it does not belong to this node now. Raises StoreError."""

    def fenced(self, queue: int, epoch: str) -> None:
        """Note that Redis refused the epoch, because another node has a newer one."""

    def release(self, queue: int, epoch: str) -> None:
        """Stop owning a queue, after its pull job has ended."""

    def redis_reachable(self, reachable: bool, *, behind: bool = False) -> None:
        """Note in each round whether this node reaches Redis, and whether its clock is far behind that of Redis.

        A node in trouble for long leaves its queues to other nodes.
        """

    @property
    def connected(self) -> bool:
        """Whether the coordinator is within reach."""

    def stop(self) -> None:
        """Leave."""


def coordinator_for(settings: Settings, store: Store, meta: Meta, clock: Clock) -> Coordinator:
    """Return a coordinator on ZooKeeper if that is set, else one that gives this node all queues; raises ConfigError."""
    queues = [queue for layout in meta.layouts for queue in layout.numbers]
    if not settings.zookeeper:
        return LocalCoordinator(store, queues, meta.era, clock)
    # Imported here, because a single node does not need kazoo.
    from coordinator.zookeeper import ZooKeeperCoordinator
    from coordinator.zookeeper.access import access_of

    return ZooKeeperCoordinator(
        settings.zookeeper_hosts,
        settings.node,
        queues=queues,
        store=store,
        clock=clock,
        read_era=lambda: store.run(commands.era(store.keys)),
        root=settings.zookeeper_path,
        session_timeout=settings.session_timeout,
        address=settings.address,
        access=access_of(settings),
    )
