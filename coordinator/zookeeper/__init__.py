"""The coordinator that spreads the queues over all live nodes by ZooKeeper. Only this package uses kazoo."""

from coordinator.zookeeper.coordinator import ZooKeeperCoordinator

__all__ = ["ZooKeeperCoordinator"]
