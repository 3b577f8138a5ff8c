"""Benchmarks on a Redis of the caller's own: a group behind sentinels, a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale
from benchmarks.load.backlog import in_time
from benchmarks.load.messages import TOPICS
from benchmarks.measures import drain, http, lateness, schedule
from benchmarks.running.given import connect, given
from delayq import Client, Message
from tests.support.clusters import ClusterUnderTest
from tests.support.sentinels import SERVICE, SentinelsUnderTest
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import NODE_TIMEOUT, SENTINEL_DOWN_AFTER

pytestmark = pytest.mark.long

FEW = 2_000


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "messages", FEW)
    # They have to be scheduled before they fall due, and on a busy machine that may take seconds.
    monkeypatch.setattr(drain, "in_time", partial(in_time, spare=5_000))


@pytest.fixture
def patient_cluster(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """It waits longer for a primary that gets no CPU for a while, as on a busy machine: no fail-over is measured here."""

    def wait(ms: int) -> None:
        for one in cluster.members:
            one.admin.config_set("cluster-node-timeout", ms)

    wait(30_000)
    yield cluster
    wait(NODE_TIMEOUT)


@pytest.fixture
def patient_sentinels(sentinels: SentinelsUnderTest) -> Iterator[SentinelsUnderTest]:
    """They wait longer, too."""

    def wait(ms: int) -> None:
        for one in sentinels.sentinels:
            one.admin.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", ms)

    wait(30_000)
    yield sentinels
    wait(SENTINEL_DOWN_AFTER)


@pytest.fixture(params=["cluster", "sentinels"])
def url(request: pytest.FixtureRequest) -> str:
    """Each of them in turn, empty."""
    found: ClusterUnderTest | SentinelsUnderTest = request.getfixturevalue(f"patient_{request.param}")
    return found.url


def left(url: str) -> list[bytes]:
    """The keys that are there."""
    with closing(connect(url)) as connection:
        return list(connection.scan_iter())


def test_one_that_knows_delayq_is_refused_and_left_alone(valkey: ServerUnderTest) -> None:
    with Client(valkey.url) as client:
        client.schedule(Message(topic="t", delay_time=3_600_000, id="mine"))
        with pytest.raises(BenchmarkError, match="is in use"), given(valkey.url):
            pass
        assert client.get("mine") is not None


def test_one_that_has_a_topics_stream_is_refused(valkey: ServerUnderTest) -> None:
    valkey.admin.xadd(TOPICS[-1], {"a": "b"})
    with pytest.raises(BenchmarkError, match="is in use"), given(valkey.url):
        pass


def test_what_is_anothers_stays_and_what_a_benchmark_left_goes(valkey: ServerUnderTest) -> None:
    valkey.admin.set("mine", "1")
    with given(valkey.url) as found, Client(found.url) as client:
        client.schedule(Message(topic="t", delay_time=3_600_000))
        assert len(left(valkey.url)) > 2
    assert left(valkey.url) == [b"mine"]


def test_scheduling_in_bulk(url: str) -> None:
    figures, details = schedule.run(Scale(True, url))
    assert all(figure.value > 0 for figure in figures)
    assert details["plain, CPU µs a message"][0].keys() == {"client"}  # its servers may be anywhere
    assert left(url) == []


@pytest.mark.parametrize("variant", drain.VARIANTS, ids=lambda variant: variant.name)
def test_draining(url: str, variant: drain.Variant) -> None:
    costs: list[dict[str, float]] = []
    assert drain.measure(variant, Scale(True, url), costs) > 0
    assert costs[0].keys() == {"worker"}
    assert left(url) == []


def test_lateness(url: str) -> None:
    found, _ = lateness.measure(Scale(True, url), 100, 2.0, 1)
    assert (found.count > 0, found.early) == (True, 0)
    assert left(url) == []


def test_http(url: str, tmp_path: Path) -> None:
    costs: list[dict[str, float]] = []
    (tmp_path / "bodies").write_bytes(b'{"topic": "t", "body": "b", "delayTime": 3600000}\n')
    rate = http.measure(Scale(True, url), "/v1/messages", tmp_path / "bodies", 4, 1.0, each=1, costs=costs)
    assert rate > 0
    assert left(url) == []
