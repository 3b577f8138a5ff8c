"""A store, a clock that stands still, and teams of nodes on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from testbed.zookeeper import ZooKeeperServer
from tests.coordinator.team import Team, team
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.zookeeper import ZooKeeperProxy


@pytest.fixture(autouse=True)
def patience_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a Redis that a busy machine keeps silent."""
    monkeypatch.setenv("DELAYQ_REDIS_TIMEOUT", str(REDIS_TIMEOUT))


@pytest.fixture
def nodes(zookeeper: ZooKeeperServer, zookeeper_root: str, store: Store, clock: ManualClock) -> Iterator[Team]:
    """Nodes on a clock that stands still: nothing is read again by and by, what changes is seen by its watch."""
    with team(zookeeper.hosts, zookeeper_root, store, clock) as made:
        yield made


@pytest.fixture
def zookeeper_proxy(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper.hosts) as running:
        yield running
