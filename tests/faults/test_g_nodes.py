"""Wrong clocks where there is somebody else: another worker, or another Redis after a fail-over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import standing_still
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, now, wait_until
from tests.support.bent_clock import BentClock
from tests.support.clusters import Member
from tests.support.sentinels import SERVICE, Sentinel
from tests.support.servers import ServerUnderTest, real_server
from tests.support.service import Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

HOUR, TWO_MINUTES = 3_600_000, 120_000
Two = tuple[Service, ServerUnderTest, BentClock]


def schedule(service: Service, name: str, ahead: int, count: int = 100) -> dict[str, int]:
    """Messages of both paths, due from `ahead` ms on; the dues by id."""
    start = now() + ahead
    dues = {f"{path}.{name}-{n}": start + 10 * n for path in (GENERAL, LOCAL) for n in range(count)}
    ids_of(batch(service, [{"topic": id.rpartition("-")[0], "id": id, "expectDate": due} for id, due in dues.items()]))
    return dues


@pytest.fixture
def two(tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_root: str) -> Iterator[Two]:
    """Two workers, and the clock of the first one."""
    clock = BentClock(tmp_path)
    with real_server("valkey") as server:
        service = Service(
            tmp_path,
            server.url,
            workers=2,
            zookeeper=zookeeper.hosts,
            zookeeper_root=zookeeper_root,
            routes=ROUTES,
            queues="8",
        )
        service.workers[0].environment = dict(clock.environment)
        service.workers[0].settings["worker_port"] = str(free_port())
        with service:
            yield service, server, clock


def test_g3_an_owner_an_hour_ahead_is_never_early_and_one_an_hour_behind_leaves_its_queues(two: Two) -> None:
    service, server, clock = two
    bent, ready = service.workers[0], f"http://{LOCALHOST}:{service.workers[0].settings['worker_port']}/readyz"

    def complains(side: str) -> bool:
        answer = httpx2.get(ready, timeout=10)
        return answer.status_code == 503 and side in answer.text

    clock.set(HOUR)
    dues = schedule(service, "g3a", 1_500)
    drained(service)
    found = arrivals(server.admin, f"{GENERAL}.g3a", f"{LOCAL}.g3a")
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(dues, 1)
    assert [id for id in found if found[id][0] < dues[id]] == []
    eventually(lambda: complains("ahead of"), "it says that its clock is ahead")
    assert set(service.owners().values()) == {"w0", "w1"}  # it does no harm

    clock.set(-HOUR)
    dues = schedule(service, "g3b", 500)
    eventually(lambda: set(service.owners().values()) == {"w1"}, "the other one has all queues")
    drained(service)
    found = arrivals(server.admin, f"{GENERAL}.g3b", f"{LOCAL}.g3b")
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(dues, 1)
    assert [id for id in found if found[id][0] < dues[id]] == []
    assert complains("behind")
    assert '"clock_skew"' in bent.said()
    before = [one["epoch"] for one in service.http.get("/v1/queues").json()["queues"]]
    drained_again = schedule(service, "g3c", 4_000)
    drained(service)
    assert len(arrivals(server.admin, f"{GENERAL}.g3c", f"{LOCAL}.g3c")) == len(drained_again)
    assert [
        one["epoch"] for one in service.http.get("/v1/queues").json()["queues"]
    ] == before  # nothing goes to and fro


def test_g4_a_fail_over_to_a_replica_with_another_clock_makes_nothing_early(tmp_path: Path) -> None:
    clock = BentClock(tmp_path)
    clock.set(HOUR)  # from the beginning: a replica whose clock steps counts as cut off for as long
    program = Member.binary() or EmbeddedServer()._binary
    with ExitStack() as stack:
        first = stack.enter_context(EmbeddedServer(binary=program))
        follow = ["--replicaof", LOCALHOST, str(first.port), "--repl-diskless-sync-delay", "0"]
        second = Member(stack.enter_context(EmbeddedServer(binary=clock.wrap(program), extra=follow)))
        stack.callback(second.admin.close)
        eventually(lambda: second.follows, "the replica follows")
        sentinel = Sentinel(first.port)
        stack.callback(sentinel.close)
        eventually(lambda: sentinel.sees().get("num-slaves") == 1, "the sentinel knows it")
        url = f"redis+sentinel://{LOCALHOST}:{sentinel.port}/{SERVICE}/0"
        service = stack.enter_context(Service(tmp_path, url, routes=ROUTES, queues="4", retry_base="50"))
        done = schedule(service, "g4a", 0, 20)
        drained(service)
        dues = schedule(service, "g4", 30_000, 50)
        with redis.Redis(port=first.port, protocol=2, socket_timeout=20) as admin:
            admin.set("behind what was accepted", 1)  # WAIT waits for what its own connection wrote
            assert admin.wait(1, 10_000) == 1
        first.kill()
        sentinel.fail_over()
        eventually(lambda: second.is_primary, "it is the primary now")
        eventually(
            lambda: service.schedule(LOCAL, id="g4-late", delayTime=10).status_code in (200, 201), "accepting again"
        )
        wait_until(min(dues.values()) - 10_000)
        with standing_still(service.workers[0].pid):  # Redis looks at its clock a few times a second only
            clock.set(-TWO_MINUTES)
            eventually(lambda: abs(second.admin.time()[0] * 1000 - clock.now()) < 5_000, "Redis has seen it")
        wait_until(max(dues.values()) + 1_000)
        found = arrivals(second.admin, f"{GENERAL}.g4", f"{LOCAL}.g4")
        assert found == {}  # an hour ahead made nothing early, two minutes behind make late
        id = next(iter(dues))
        assert service.http.delete(f"/v1/messages/{id}").json()["result"] == "cancelled"
        clock.set(0)
        assert service.http.delete("/v1/messages/g4-late").json()["result"] == "cancelled"
        drained(service)
        found = arrivals(second.admin, f"{GENERAL}.g4", f"{LOCAL}.g4")
        assert {id: len(times) for id, times in found.items()} == dict.fromkeys(set(dues) - {id}, 1)
        assert [id for id in found if found[id][0] < dues[id]] == []
        before = arrivals(second.admin, f"{GENERAL}.g4a", f"{LOCAL}.g4a")
        assert {id: len(times) for id, times in before.items()} == dict.fromkeys(done, 1)
