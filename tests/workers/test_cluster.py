"""Nodes that share the queues by a real ZooKeeper."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from delayq.client.client import Client
from delayq.client.operations import Scheduled
from delayq.message import Message
from delayq.testing import MemoryTarget
from testbed.zookeeper import ZooKeeperServer
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.support.zookeeper import real_zookeeper
from tests.workers.nodes import settings_for

pytestmark = pytest.mark.slow
QUEUES = 8


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    target = MemoryTarget()
    yield target
    target.close()


class Cluster:
    """Nodes in threads, each with a name of its own."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.nodes: dict[str, RunningNode] = {}

    def join(self, name: str) -> RunningNode:
        options = {"queues": QUEUES, "session_timeout": 2_000, **self._options, "node": name}
        node = RunningNode(settings_for(**options))
        self.nodes[name] = node
        node.start()
        return node

    def leave(self, name: str) -> None:
        self.nodes.pop(name).stop()

    def queues(self) -> dict[str, set[int]]:
        """The queues of each node."""
        return {name: set(one.node.jobs) for name, one in self.nodes.items()}

    def shared(self) -> bool:
        """Whether every queue has one owner, and loads differ by one at most."""
        owned = self.queues()
        loads = [len(queues) for queues in owned.values()]
        return Counter(q for queues in owned.values() for q in queues) == dict.fromkeys(range(QUEUES), 1) and (
            max(loads) - min(loads) <= 1
        )

    def wait_until_shared(self) -> None:
        eventually(self.shared, f"the queues are shared: {self.queues()}")


@contextmanager
def cluster(**options: Any) -> Iterator[Cluster]:
    """No nodes yet; those that joined leave at the end."""
    made = Cluster(**options)
    try:
        yield made
    finally:
        for name in list(made.nodes):
            made.leave(name)


@pytest.fixture
def nodes(
    valkey: ServerUnderTest, zookeeper: ZooKeeperServer, zookeeper_root: str, target: MemoryTarget
) -> Iterator[Cluster]:
    with cluster(
        url=valkey.url, targets={"m": target}, zookeeper=zookeeper.hosts, zookeeper_root=zookeeper_root
    ) as made:
        yield made


def schedule(client: Client, topic: str, count: int, delay: int = 0) -> list[str]:
    answers = client.schedule_many([Message(topic=topic, body=str(i), delay_time=delay + i % 50) for i in range(count)])
    assert all(isinstance(answer, Scheduled) for answer in answers)
    return [answer.id for answer in answers if isinstance(answer, Scheduled)]


def test_nodes_share_the_queues_and_those_of_one_that_leaves_go_to_the_others(
    nodes: Cluster, target: MemoryTarget
) -> None:
    first = nodes.join("one")
    nodes.wait_until_shared()
    nodes.join("two")
    nodes.join("three")
    nodes.wait_until_shared()
    with Client(settings=first.settings) as client:
        ids = schedule(client, "m.t", 300, delay=200)
        target.wait_for_ids(ids)
        nodes.leave("two")
        nodes.wait_until_shared()
        ids += schedule(client, "m.t", 300)
        target.wait_for_ids(ids)
    assert Counter(target.ids) == Counter(ids)  # none twice


def test_a_rolling_restart_under_load_loses_and_doubles_nothing(nodes: Cluster, target: MemoryTarget) -> None:
    names = ["one", "two", "three"]
    first = nodes.join("one")
    for name in names[1:]:
        nodes.join(name)
    nodes.wait_until_shared()
    ids: list[str] = []
    with Client(settings=first.settings) as client:
        for name in names:
            ids += schedule(client, "m.t", 500, delay=100)
            nodes.leave(name)
            ids += schedule(client, "m.t", 500)
            nodes.join(name)
            nodes.wait_until_shared()
        target.wait_for_ids(ids)
    assert Counter(target.ids) == Counter(ids)


def test_without_zookeeper_owners_go_on_and_afterwards_a_node_can_join(
    valkey: ServerUnderTest, target: MemoryTarget
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(real_zookeeper())
        nodes = stack.enter_context(cluster(url=valkey.url, targets={"m": target}, zookeeper=server.hosts))
        first = nodes.join("one")
        nodes.join("two")
        nodes.wait_until_shared()
        before = nodes.queues()
        server.kill()
        with Client(settings=first.settings) as client:
            ids = schedule(client, "m.t", 200, delay=300)
            target.wait_for_ids(ids)
        assert nodes.queues() == before
        server.start()
        nodes.join("three")
        nodes.wait_until_shared()
        with Client(settings=first.settings) as client:
            ids += schedule(client, "m.t", 200)
            target.wait_for_ids(ids)
        assert set(target.ids) == set(ids)
