"""Fail-over and scale: what becomes of what was measured, and the groups of servers that are measured."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from benchmarks.harness import Scale
from benchmarks.load.messages import TOPICS
from benchmarks.measures import failover, failover_nodes, failover_redis, scale
from benchmarks.measures.failover_nodes import Kill, Nodes, Quorum, Rolling
from benchmarks.measures.failover_redis import FailOver, Killed, Load
from benchmarks.results import Figure
from benchmarks.running import groups
from benchmarks.running.given import connect
from benchmarks.running.groups import cluster, sentinels
from delayq import Client, Message

NODES = Nodes(
    rolling=Rolling(duplicates=0, quiet=3.0, late=103.0, seconds=9.0),
    kills=[Kill(first=3.0, last=3.5, queues=5, duplicates=7), Kill(first=4.0, last=5.5, queues=5, duplicates=1)],
    quorum=Quorum(errors=1, quiet=3.0, late=4.0, seconds=120.0),
    lost=0,
)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """What fail-over makes of such findings, by name."""
    monkeypatch.setattr(failover, "available", lambda: None)
    monkeypatch.setattr(failover_nodes, "measure", lambda scale: NODES)
    killed = Killed([Load(load=4.0, after=0.5), Load(load=3.0, after=1.5), Load(load=3.5, after=0.9)], lost=0)
    monkeypatch.setattr(failover_redis, "killed", lambda scale: killed)
    monkeypatch.setattr(failover_redis, "behind_sentinels", lambda scale: FailOver([2.0, 5.0, 7.0], lost=0))
    monkeypatch.setattr(failover_redis, "in_a_cluster", lambda scale: FailOver([5.5], lost=2))
    found, details = failover.run(Scale(False))
    assert details["redis"]["runs"][1] == {"load": 3.0, "after": 1.5}
    return {figure.name: figure for figure in found}


@pytest.mark.parametrize(
    ("name", "value", "goal", "reached"),
    [
        ("rolling restart, duplicates", 0, 0, True),
        ("rolling restart, lateness p99 added", 100, 100, True),
        ("node killed, all its queues deliver again", 4.5, 5, True),
        ("ZooKeeper without quorum, calls refused", 1, 0, False),
        ("ZooKeeper without quorum, lateness p99 added", 1, 5, True),
        ("nodes and ZooKeeper, lost", 0, 0, True),
        ("Redis killed with 1,000,000 pending, load", 3.5, None, None),
        ("Redis killed, delivering again after the load", 0.9, 1, True),
        ("Redis killed, lost", 0, 0, True),
        ("Sentinel, primary killed, delivering again", 5, 5, True),
        ("Sentinel, primary killed, lost", 0, 0, True),
        ("Redis Cluster, primary killed, delivering again", 5.5, 6, True),
        ("Redis Cluster, primary killed, lost", 2, 0, False),
    ],
)
def test_a_fault_is_set_beside_its_goal(
    figures: dict[str, Figure], name: str, value: float, goal: float | None, reached: bool | None
) -> None:
    figure = figures[name]
    assert (figure.value, figure.goal, figure.reached) == (value, goal, reached)


def test_scale_tells_each_setup_and_takes_them_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, int]] = []

    def measure(setup: scale.Setup, count: int, zookeeper: Any) -> scale.Drained:
        measured.append((setup.name, count))
        return scale.Drained(rate=1_000.0 * len(measured), redis=5.0, busiest=2.0, nodes=6.0)

    class NoZooKeeper:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(scale, "ZooKeeperServer", NoZooKeeper)
    monkeypatch.setattr(scale, "_measure", measure)
    found, _ = scale.run(Scale(False))
    setups = ["1 node", "2 nodes", "4 nodes", "Redis Cluster, 1 primary", "Redis Cluster, 3 primaries"]
    assert measured == [(name, 200_000) for name in setups * 2]
    rates = {figure.name: figure.value for figure in found if figure.unit == "messages/s"}
    assert rates == {f"{name}, drained": 3_500.0 + 1_000 * place for place, name in enumerate(setups)}
    assert [figure.name for figure in found if "busiest" in figure.name] == [
        "Redis Cluster, 3 primaries, CPU of the busiest"
    ]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody replaces a primary that gets no CPU for a while, as on a busy machine."""
    monkeypatch.setattr(groups, "DOWN_AFTER", 30_000)
    monkeypatch.setattr(groups, "NODE_TIMEOUT", 30_000)


@pytest.mark.usefixtures("patient")
def test_a_group_behind_sentinels_is_whole_when_it_is_handed_out() -> None:
    with sentinels() as group, Client(group.url) as client:
        assert client.schedule(Message(topic="t", delay_time=3_600_000)).created
        assert group.primary_of("t") is group.servers[0]
        assert group.followed(2)
        assert not group.followed(3)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("replicas", [True, False])
def test_a_cluster_is_whole_when_it_is_handed_out(replicas: bool) -> None:
    with cluster(3, replicas=replicas) as group, Client(group.url) as client, closing(connect(group.url)) as plain:
        assert all(client.schedule(Message(topic="t", delay_time=3_600_000)).created for _ in range(20))
        assert len(group.servers) == 3 * (1 + replicas)
        assert group.followed(int(replicas))
        assert {group.primary_of(topic).port for topic in TOPICS} <= {server.port for server in group.servers[:3]}
        assert group.primary_of("t").port == plain.get_node_from_key("t").port
