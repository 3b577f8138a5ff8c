"""Who owns which queue.

Redis decides (the highest epoch wins); a coordinator only spreads the work. `local` gives one node all queues,
`zookeeper` spreads them over all live nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from coordinator.epoch import Claim, epoch_text
from coordinator.errors import CoordinatorError, CoordinatorRefused
from coordinator.local import LocalCoordinator
from delayq.clock import Clock
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

#: How long Redis has to be out of a node's reach, or its clock behind, before others are given its queues (ms).
REDIS_AWAY: Final = 5_000


class Coordinator(Protocol):
    """Says which queues this node should own, and under which epoch.

    `start`, `claim` and `release` may raise CoordinatorError when the coordinator is away: call them again.
    """

    def watch(self, changed: Callable[[], None]) -> None:
        """Before `start`: what to call, from any thread, when `assigned` or what can be claimed may have changed."""

    def share(self, queues: Collection[int]) -> None:
        """These are the queues that there are now."""

    def start(self) -> None:
        """Take part; raises StoreUnavailable or CoordinatorError when that is not possible now (call it again)."""

    def assigned(self) -> frozenset[int]:
        """The queues that this node should own now."""

    def reason(self, queue: int) -> str:
        """Why a queue that is not assigned is not, in words for the log."""

    def claim(self, queue: int) -> Claim | None:
        """Begin owning a queue; None if it is not ours (any more, or not yet). Raises StoreError."""

    def fenced(self, queue: int, epoch: str) -> None:
        """Redis answered FENCED to the epoch: somebody else has a newer one."""

    def release(self, queue: int, epoch: str) -> None:
        """Stop owning a queue, after its pull job has ended."""

    def redis_reachable(self, reachable: bool, *, behind: bool = False) -> None:
        """Each round: whether this node reaches Redis, and whether its clock is far behind that of Redis.

        One that does not, or whose clock is, for long, leaves its queues to others.
        """

    @property
    def connected(self) -> bool:
        """Whether the coordinator is within reach."""

    def stop(self) -> None:
        """Leave."""


def coordinator_for(settings: Settings, store: Store, meta: Meta, clock: Clock) -> Coordinator:
    """ZooKeeper's if DELAYQ_ZOOKEEPER names one, else all queues for this node. Raises ConfigError."""
    queues = [queue for layout in meta.layouts for queue in layout.numbers]
    if not settings.zookeeper:
        return LocalCoordinator(store, queues, meta.era, clock)
    # Only now, for it imports kazoo, which a node alone does not need.
    from coordinator.zookeeper import ZooKeeperCoordinator
    from coordinator.zookeeper.access import access_of

    return ZooKeeperCoordinator(
        settings.zookeeper_hosts,
        settings.node,
        queues=queues,
        store=store,
        clock=clock,
        read_era=lambda: store.run(commands.era()),
        root=settings.zookeeper_path,
        session_timeout=settings.session_timeout,
        address=settings.address,
        access=access_of(settings),
    )
