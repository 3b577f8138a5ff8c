"""Workers that are killed or stopped at the worst moment: nothing is lost, and only what was in flight comes twice."""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import standing_still
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, metric, now, state_of
from tests.faults.house import restarted
from tests.support.clusters import id_in
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest, real_server
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually
from tests.support.zookeeper import real_zookeeper

pytestmark = pytest.mark.long

QUEUES, WINDOW = 4, 50
SABOTEUR = [sys.executable, "-m", "tests.faults.saboteur"]


class Pair:
    """A service whose worker reaches its Redis and its target, another Redis, through proxies."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.home = stack.enter_context(real_server("valkey"))
        self.away = stack.enter_context(real_server("valkey", appendonly=False))
        self.to_home = stack.enter_context(FaultProxy(self.home.port))
        self.to_away = stack.enter_context(FaultProxy(self.away.port))
        route = {"name": "away", "target": f"redis+stream:{self.to_away.url}", "sendTimeout": 10_000}
        self.service = Service(
            folder,
            self.home.url,
            routes=json.dumps([route]),
            queues=str(QUEUES),
            window=str(WINDOW),
            retry_base="50",
            retry_cap="500",
            redis_timeout="1000",
        )
        self.worker.settings["worker_port"] = str(free_port())
        self.worker.settings["redis_url"] = self.to_home.url
        stack.enter_context(self.service)

    @property
    def worker(self) -> OneProcess:
        return self.service.workers[0]

    def schedule(self, name: str, count: int = 400) -> list[str]:
        """Messages that are due in a moment, for topic `name`."""
        due = now() + 300
        return ids_of(
            batch(self.service, [{"topic": name, "id": f"{name}-{n}", "expectDate": due} for n in range(count)])
        )

    def pulled(self) -> None:
        """Wait until the worker has some in its memory: what Redis has handed out may be on the line."""
        eventually(lambda: metric(self.worker, "delayq_in_flight") > 0, "some are in flight")

    def replace_worker(self) -> None:
        """Kill the worker, mend everything, and start another one."""
        self.worker.kill()
        self.to_home.heal()
        self.to_away.heal()
        self.worker.start()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path_factory.mktemp("pair"), stack)


def test_d1_what_was_confirmed_and_not_acked_when_a_worker_is_killed_comes_once_more(pair: Pair) -> None:
    target = pair.away.admin.info("server")["process_id"]
    with standing_still(target):
        ids = pair.schedule("d1")
        pair.pulled()
        pair.to_home.black_hole()  # from here on no ack gets through
    eventually(lambda: pair.away.admin.xlen("d1") > 0, "the target has confirmed some")
    pair.replace_worker()
    drained(pair.service)
    found = arrivals(pair.away.admin, "d1")
    assert found.keys() == set(ids)
    copies = sum(len(times) - 1 for times in found.values())
    print(f"{copies} came twice")
    assert 0 < copies <= QUEUES * WINDOW
    assert max(len(times) for times in found.values()) == 2


def test_d2_what_was_pulled_and_not_sent_when_a_worker_is_killed_comes_once(pair: Pair) -> None:
    pair.to_away.black_hole()  # what is sent now never arrives
    ids = pair.schedule("d2")
    pair.pulled()
    pair.replace_worker()
    drained(pair.service)
    assert {id: len(times) for id, times in arrivals(pair.away.admin, "d2").items()} == dict.fromkeys(ids, 1)


@pytest.fixture(scope="module")
def team(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer
) -> Iterator[tuple[Service, ServerUnderTest, Path]]:
    """Two workers on a ZooKeeper, with a slow target, and one that hangs while a file is there."""
    folder = tmp_path_factory.mktemp("team")
    with real_server("valkey") as server, real_server("valkey", appendonly=False) as target:
        rows = [
            {"name": "hangs", "match": "h.*", "target": f"hang:{folder}/hang:redis+stream:{target.url}"},
            {"name": "slow", "match": "g.*", "target": f"slow:800:redis+stream:{target.url}"},
            {"name": "streams"},
        ]
        service = Service(
            folder,
            server.url,
            workers=2,
            zookeeper=zookeeper.hosts,
            zookeeper_root="/faults-d",
            routes=json.dumps(rows),
            session_timeout="2000",
            drain_timeout="2000",
            retry_base="50",
        )
        for worker in service.workers:
            worker.command = SABOTEUR
            worker.settings["worker_port"] = str(free_port())
        with service:
            yield service, target, folder / "hang"


def ready(worker: OneProcess) -> int:
    """What its /readyz answers; 0 when it does not."""
    try:
        return httpx2.get(f"http://{LOCALHOST}:{worker.settings['worker_port']}/readyz", timeout=5).status_code
    except httpx2.HTTPError:
        return 0


def test_d3_a_worker_that_is_stopped_under_load_finishes_its_sends_and_hands_over(
    team: tuple[Service, ServerUnderTest, Path],
) -> None:
    service, target, hang = team
    stopped, ids, worker = threading.Event(), list[str](), service.workers[0]

    def produce() -> None:
        with httpx2.Client(base_url=service.url, timeout=20) as http:
            while not stopped.is_set():
                said = http.post("/v1/messages", json={"topic": GENERAL, "delayTime": random.choice([0, 100, 500])})
                ids.append(said.json()["id"])

    producer = threading.Thread(target=produce)
    # Long enough for its sends and for its session, however long a busy machine lets it wait.
    with restarted(service, session_timeout="20000", drain_timeout="30000", send_timeout="30000"):
        producer.start()
        try:
            eventually(lambda: target.admin.xlen(GENERAL) > 100, "there is load")
            eventually(lambda: ready(worker) == 200, "the worker is ready")
            hang.touch()  # so that it has a send to finish until it was seen not to be ready
            queue = next(queue for queue, owner in service.owners().items() if owner == worker.name)
            held = id_in(queue, "d3")
            assert service.schedule("h.d3", id=held, delayTime=0).status_code == 201
            eventually(lambda: state_of(service, held) == "in_flight", "a send is under way")
            worker.signal(signal.SIGTERM)
            eventually(lambda: ready(worker) == 503, "it is not ready any more, and still there")
            hang.unlink()
            eventually(lambda: not worker.alive, "it has ended")
            count = len(ids)
            eventually(lambda: len(ids) > count + 100, "the other one has the load")
        finally:
            hang.unlink(missing_ok=True)
            stopped.set()
            producer.join(30)
        assert worker.returncode == 0
        drained(service)
        assert {id: len(times) for id, times in arrivals(target.admin, GENERAL).items()} == dict.fromkeys(ids, 1)
        assert {id: len(times) for id, times in arrivals(target.admin, "h.d3").items()} == {held: 1}
        assert set(service.owners().values()) == {"w1"}
        worker.start()
        eventually(service.owned, "it takes its part again")


def test_d4_a_worker_that_is_stopped_while_its_target_hangs_ends_all_the_same(
    team: tuple[Service, ServerUnderTest, Path],
) -> None:
    service, target, hang = team
    hang.touch()
    try:
        ids = ids_of(batch(service, [{"topic": "h.d4", "id": f"d4-{n}", "delayTime": 0} for n in range(100)]))
        eventually(lambda: state_of(service, "d4-0") == "in_flight", "the sends hang")
        for worker in service.workers:
            worker.signal(signal.SIGTERM)
        for worker in service.workers:
            eventually(lambda worker=worker: not worker.alive, "it has ended after the drain time")  # type: ignore[misc]  # a default binds it
            assert worker.returncode == 0
        assert target.admin.xlen("h.d4") == 0
    finally:
        hang.unlink()
    for worker in service.workers:
        worker.start()
    drained(service)
    assert {id: len(times) for id, times in arrivals(target.admin, "h.d4").items()} == dict.fromkeys(ids, 1)
    eventually(service.owned, "both have their part again")


def test_d12_when_all_processes_die_at_once_they_come_back_in_any_order_and_lose_nothing(
    tmp_path: Path, own_valkey: EmbeddedServer
) -> None:
    chance, window = random.Random(12), 100
    with (
        real_zookeeper() as zookeeper,
        Service(
            tmp_path,
            own_valkey.url,
            workers=2,
            zookeeper=zookeeper.hosts,
            session_timeout="2000",
            routes=ROUTES,
            window=str(window),
            retry_base="50",
        ) as service,
    ):
        ids: list[str] = []
        for turn in range(2):
            server = ServerUnderTest("valkey", own_valkey.url)
            some = server.admin.xlen(f"{LOCAL}.d12")
            start = now() + 500
            calls = [
                {"topic": topic, "id": f"{topic}-{turn}-{n}", "expectDate": start + n}
                for topic in (f"{GENERAL}.d12", f"{LOCAL}.d12")
                for n in range(2_000)
            ]
            ids += ids_of(batch(service, calls))
            eventually(lambda some=some, server=server: server.admin.xlen(f"{LOCAL}.d12") > some, "in the middle of it")  # type: ignore[misc]  # defaults bind them
            server.close()
            kills = [one.kill for one in service.processes] + [own_valkey.kill, zookeeper.kill]
            starts = [one.start for one in service.processes] + [own_valkey.start, zookeeper.start]
            for kill in chance.sample(kills, len(kills)):
                kill()
            for begin in chance.sample(starts, len(starts)):
                begin()
            eventually(service.ready, "the API is ready")
            eventually(service.owned, "every queue has an owner and every worker a queue")
        drained(service)
        server = ServerUnderTest("valkey", own_valkey.url)
        general, local = arrivals(server.admin, f"{GENERAL}.d12"), arrivals(server.admin, f"{LOCAL}.d12")
        server.close()
    assert general.keys() | local.keys() == set(ids)
    assert {len(times) for times in local.values()} == {1}
    assert max(len(times) for times in general.values()) <= 3
    assert sum(len(times) - 1 for times in general.values()) <= 2 * 16 * window
