"""The coordinator that spreads the queues over all live nodes by ZooKeeper. kazoo is known only in this package."""

from coordinator.zookeeper.coordinator import ZooKeeperCoordinator

__all__ = ["ZooKeeperCoordinator"]
