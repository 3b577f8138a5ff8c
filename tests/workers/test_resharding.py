"""Queues are resharded while everything runs: nothing is lost, early, doubled, or sent after a certain cancel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import die_with_parent
from delayq.store.keys import KEYS
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import entries
from tests.support.clusters import ClusterUnderTest
from tests.support.load import Load
from tests.support.proxy import FaultProxy
from tests.support.service import ROOT, Service
from tests.support.timeouts import SESSION_TIMEOUT
from tests.support.waiting import eventually

TOPIC = "demo"
WINDOW = "25s"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


def reshard(url: str, queues: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "delayq.cli", "reshard", "--queues", str(queues), "--redis-url", url]
    return subprocess.Popen(
        die_with_parent(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )


def load_on(service: Service) -> Load:
    """A producer of messages with ordering keys, which takes whatever layouts its API knows."""
    return Load(service.url, TOPIC, batch=35, latest=4_000, ordering_keys=7)


def wanted(load: Load) -> set[str]:
    """What has to arrive."""
    return set(load.accepted[TOPIC]) - load.cancelled - load.in_flight


def check(load: Load, found: list[dict[str, bytes]]) -> None:
    """Every promise was kept, by the entries of the streams, in the order of each."""
    assert "notFound" not in load.results, "a cancel does not find what was accepted"
    times = Counter(one["id"].decode() for one in found)
    assert wanted(load) - times.keys() == set(), "lost"
    assert [id for id, count in times.items() if count > 1] == [], "doubled"
    assert load.cancelled & times.keys() == set(), "sent after a certain cancel"
    assert [one for one in found if int(one["at"]) < int(one["due"])] == [], "early"
    # Within one key, which the suffix of an id tells, and one layout nothing overtakes.
    lanes: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for one in found:
        id = one["id"].decode()
        lanes[id.rpartition(".")[2], load.queues[id]].append((int(one["due"]), id))
    assert len(lanes) > 7
    assert all(lane == sorted(lane) for lane in lanes.values())


@pytest.fixture
def service(
    own_valkey: EmbeddedServer, zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> Iterator[Service]:
    with Service(
        tmp_path,
        own_valkey.url,
        workers=2,
        zookeeper=zookeeper.hosts,
        zookeeper_root=zookeeper_root,
        final_window=WINDOW,
        session_timeout=str(SESSION_TIMEOUT),
    ) as running:
        yield running


@pytest.mark.long
def test_twice_under_load_and_killed_in_the_middle_nothing_is_lost_early_or_doubled(
    service: Service, own_valkey: EmbeddedServer
) -> None:
    url = own_valkey.url
    streams: Any = redis.Redis.from_url(url, protocol=2)

    def listed() -> str:
        return str(streams.hget(KEYS.meta, "layouts").decode())

    with load_on(service) as load:
        load.wait_for(150)
        with FaultProxy(own_valkey.port) as proxy:

            def hold(_: object) -> bool:
                """What follows it does not arrive: it is killed with the new layout listed and no queue closed."""
                proxy.hold()
                return False

            proxy.drop_reply("set_layouts", when=hold)
            first = reshard(proxy.url, 64)
            eventually(lambda: listed() == "16 64@16", "the new layout is listed")
            first.kill()
            first.communicate()
            proxy.reset()
        load.wait_for(150)  # while it is half done
        again = reshard(url, 64)
        said = again.communicate()[0].decode()
        assert again.returncode == 0, said
        assert "close" in said
        load.wait_for(150)
        third = reshard(url, 8)  # fewer, while the first reshard is not over yet
        said = third.communicate()[0].decode()
        assert third.returncode == 0, said
        load.wait_for(150)
    eventually(lambda: int(streams.xlen(TOPIC)) >= len(wanted(load)), "everything was forwarded")
    check(load, entries(streams, TOPIC))
    queues = set(load.queues.values())
    assert queues & set(range(16))
    assert queues & set(range(16, 80))
    assert queues & set(range(80, 88))
    assert all(owner in ("w0", "w1") for owner in service.owners().values())
    eventually(lambda: listed() == "8@80", "the old layouts are dropped")
    eventually(lambda: set(service.owners()) == set(range(80, 88)) and service.owned(), "the nodes own what is left")
    check(load, entries(streams, TOPIC))
    assert service.schedule(TOPIC, body="last", delayTime=0, id="last").status_code == 201
    streams.close()


@pytest.mark.release
def test_in_a_redis_cluster(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    routes = '[{"name": "streams", "match": "*", "target": "redis+stream:", "perQueue": true}]'
    with Service(tmp_path, cluster.url, workers=1, routes=routes) as service:
        with load_on(service) as load:
            load.wait_for(150)
            ran = reshard(cluster.url, 24)
            said = ran.communicate()[0].decode()
            assert ran.returncode == 0, said
            load.wait_for(150)
        names = [f"delayq:{{{queue}}}:stream:{TOPIC}" for queue in range(40)]
        eventually(
            lambda: sum(int(cluster.admin.xlen(name)) for name in names) >= len(wanted(load)),
            "everything was forwarded",
        )
        check(load, entries(cluster.admin, *names))
        assert {queue < 16 for queue in load.queues.values()} == {True, False}
