"""How full a stream is, and a route that bounds it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from delayq.base.errors import ConfigError
from delayq.domain.routes import Route, Routes, load_routes
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from delayq.store.commands import Act, Lease, ReceivedEntries
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import Target, open_target
from delayq.targets.redis_stream import target as redis_stream
from delayq.targets.redis_stream.backlog import backlogs
from delayq.targets.redis_stream.target import is_local
from tests.support.clusters import ClusterUnderTest
from tests.support.deliveries import delivery, outcomes
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, SEND_SECONDS

NOWHERE = f"redis://{LOCALHOST}:1/0"


@pytest.fixture
def store(server: ServerUnderTest) -> Iterator[Store]:
    made = Store(server.url, timeout=PATIENCE)
    yield made
    made.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target waits for how full streams are as long as for all else."""
    monkeypatch.setattr(redis_stream, "Store", partial(Store, timeout=PATIENCE))


def append(server: ServerUnderTest, stream: str, count: int) -> None:
    for number in range(count):
        server.admin.xadd(stream, {"id": f"{stream}-{number}"})


def opened(url: str, most: int) -> Target:
    return open_target(Route(name="r", target=f"redis+stream:{url}", max_backlog=most), NOWHERE)


def test_it_is_what_the_slowest_group_has_yet_to_read_and_to_acknowledge(server: ServerUnderTest, store: Store) -> None:
    append(server, "s", 10)
    for group, taken, acked in (("fast", 10, 10), ("slow", 4, 1)):
        server.admin.xgroup_create("s", group, "0")
        ((_, entries),) = server.admin.xreadgroup(group, "c", {"s": ">"}, count=taken)
        server.admin.xack("s", group, *[number for number, _ in entries[:acked]])
    assert backlogs(store, ["s"]) == {"s": 9}  # 3 to acknowledge, 6 to read


def test_each_message_that_a_call_has_received_counts(server: ServerUnderTest, store: Store) -> None:
    append(server, "s", 10)
    keys = KEYS.consumers("s", "g")
    received = store.run(commands.receive(keys, "g", "call", 4, 60_000))
    assert isinstance(received, ReceivedEntries)
    assert backlogs(store, ["s"]) == {"s": 10}
    lease = Lease(" ".join(one.lease.entries for one in received.entries), "call")
    store.run(commands.settle_received(keys, "g", [Act("ack", lease)]))
    assert backlogs(store, ["s"]) == {"s": 6}


def test_without_groups_it_is_all_entries_and_what_is_no_stream_has_none(server: ServerUnderTest, store: Store) -> None:
    append(server, "s", 7)
    server.admin.set("text", "x")
    assert backlogs(store, ["s", "text", "nothing"]) == {"s": 7, "text": 0, "nothing": 0}
    assert backlogs(store, []) == {}


def test_where_the_server_cannot_say_how_far_a_group_is_it_is_all_entries(
    server: ServerUnderTest, store: Store
) -> None:
    append(server, "s", 6)
    server.admin.xdel("s", server.admin.xrange("s")[3][0])
    server.admin.xgroup_create("s", "g", server.admin.xrange("s")[1][0])  # from somewhere within: its lag is not known
    assert server.admin.xinfo_groups("s")[0].get("lag") is None
    assert backlogs(store, ["s"]) == {"s": 5}


@pytest.mark.usefixtures("patient")
def test_at_the_bound_only_what_goes_into_the_full_stream_is_kept_back(server: ServerUnderTest) -> None:
    append(server, "full", 5)
    target = opened(server.url, 5)
    results = target.send([delivery("a", topic="full"), delivery("b", topic="free")], PATIENCE)
    assert outcomes(results) == ["full", "ok"]
    assert "the consumers of full have 5 entries before them" in results[0].reason
    server.admin.xtrim("full", maxlen=4, approximate=False)
    assert outcomes(target.send([delivery("a", topic="full")], SEND_SECONDS)) == ["ok"]
    assert server.admin.xlen("full") == 5
    target.close()


def test_a_target_that_cannot_be_asked_took_nothing() -> None:
    target = opened(f"redis://{LOCALHOST}:{free_port()}/0", 5)
    assert outcomes(target.send([delivery("a")], SEND_SECONDS)) == ["unavailable"]
    target.close()


@pytest.mark.long
@pytest.mark.xdist_group("cluster")
def test_in_a_cluster_each_stream_is_asked_where_it_is(cluster: ClusterUnderTest) -> None:
    target = opened(cluster.url, 3)
    topics = [f"t{number}" for number in range(12)]
    for topic in topics[:6]:
        append(cluster, topic, 3)
    results = target.send([delivery(topic, topic=topic) for topic in topics], SEND_SECONDS)
    assert outcomes(results) == ["full"] * 6 + ["ok"] * 6
    target.close()


def test_a_route_with_a_bound_takes_the_general_path() -> None:
    (route,) = load_routes('[{"name": "r", "maxBacklog": 100}]').table
    assert route.max_backlog == 100
    assert not is_local(route, NOWHERE)


@pytest.mark.parametrize("given", [{"per_queue": True}, {"target": "log:"}, {"max_backlog": 0}], ids=str)
def test_a_bound_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"name": "r", "max_backlog": 5} | given
    with pytest.raises(ConfigError, match=r"route r: .*maxBacklog"):
        Routes([Route(**fields)])
