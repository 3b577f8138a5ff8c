"""Which coordinator the settings ask for."""

from __future__ import annotations

from coordinator import Coordinator, LocalCoordinator
from coordinator.zookeeper import ZooKeeperCoordinator
from coordinator.zookeeper.access import access_of
from delayq.clock import Clock
from delayq.config import Settings
from delayq.store import commands
from delayq.store.commands import Meta
from delayq.store.connect.store import Store

__all__ = ["coordinator_for"]


def coordinator_for(settings: Settings, store: Store, meta: Meta, clock: Clock) -> Coordinator:
    """ZooKeeper's if DELAYQ_ZOOKEEPER names one, else all queues for this node. Raises ConfigError."""
    queues = [queue for layout in meta.layouts for queue in layout.numbers]
    if not settings.zookeeper:
        return LocalCoordinator(store, queues, meta.era, clock)
    return ZooKeeperCoordinator(
        settings.zookeeper, settings.node, queues=queues, store=store, clock=clock,
        read_era=lambda: store.run(commands.era()), root=settings.zookeeper_root,
        session_timeout=settings.session_timeout, address=settings.address, access=access_of(settings),
    )  # fmt: skip
