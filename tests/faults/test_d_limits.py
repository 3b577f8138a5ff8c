"""Processes that run out of memory, of descriptors, of processor time; and processes that are forked."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from delayq.embedded import EmbeddedServer
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, left
from tests.support.servers import ServerUnderTest, real_server
from tests.support.service import ROOT, OneProcess, Service
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of running processes, as Linux can"),
]

MEGABYTE = 1024 * 1024
WINDOW = 200


@pytest.fixture(scope="module")
def server() -> Iterator[ServerUnderTest]:
    with real_server("valkey") as running:
        yield running


@pytest.fixture(scope="module")
def service(server: ServerUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("limits")
    with Service(folder, server.url, routes=ROUTES, queues="8", window=str(WINDOW), retry_base="50") as running:
        yield running


def limit(process: OneProcess, which: int, most: int) -> None:
    """Limit a running process; only the soft limit, so that it can be lifted again."""
    _, hard = resource.prlimit(process.pid, which)
    resource.prlimit(process.pid, which, (most, hard))


def virtual(process: OneProcess) -> int:
    """The bytes of its address space."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()


def test_d7_a_worker_without_memory_loses_nothing(service: Service, server: ServerUnderTest) -> None:
    topic, (worker,) = f"{GENERAL}.d7", service.workers
    calls = [{"topic": topic, "id": f"d7-{n}", "body": "x" * 500_000, "delayTime": 3_000} for n in range(240)]
    ids = ids_of(batch(service, calls, size=12))
    limit(worker, resource.RLIMIT_AS, virtual(worker) + 24 * MEGABYTE)  # a pull alone may bring 8
    for _ in range(100):  # it gets through, struggles on, or dies of it
        if not worker.alive or not left(service):
            break
        time.sleep(0.1)
    worker.kill()
    worker.start()  # as whoever supervises it does
    assert service.schedule(LOCAL, id="d7-after", delayTime=0).status_code == 201
    drained(service)
    found = arrivals(server.admin, topic)
    assert found.keys() == set(ids)
    assert sum(len(times) - 1 for times in found.values()) <= 8 * WINDOW
    assert max(len(times) for times in found.values()) <= 3
    server.admin.delete(topic)


def test_d8_processes_without_descriptors_refuse_and_recover_by_themselves(
    service: Service, server: ServerUnderTest
) -> None:
    api, (worker,) = service.api, service.workers
    assert service.schedule(LOCAL, id="d8-before", delayTime="1h").status_code == 201
    limit(api, resource.RLIMIT_NOFILE, 3)  # what is open stays open, nothing else can be opened
    limit(worker, resource.RLIMIT_NOFILE, 3)
    server.admin.client_kill_filter(_type="normal", skipme=True)
    eventually(lambda: "redis_trouble" in worker.said(), "the worker says so")
    refused = service.schedule(LOCAL, id="d8-1", delayTime=0)  # by a connection that was open before
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"{service.url}/livez", timeout=2)
    for process in (api, worker):
        limit(process, resource.RLIMIT_NOFILE, 1_024)
    eventually(service.ready, "the API is ready again")
    eventually(lambda: service.schedule(LOCAL, id="d8-1", delayTime=0).status_code in (200, 201), "it accepts again")
    eventually(lambda: len(arrivals(server.admin, LOCAL).get("d8-1", ())) == 1, "it delivers again")
    assert service.http.delete("/v1/messages/d8-before").json()["result"] == "cancelled"
    drained(service)


def shares(service: Service) -> list[int]:
    """How many queues each worker owns."""
    return sorted(Counter(service.owners().values()).values())


def test_d9_two_busy_loops_beside_the_workers_cost_no_session(
    tmp_path: Path, own_valkey: EmbeddedServer, zookeeper: ZooKeeperServer
) -> None:
    busy: list[subprocess.Popen[bytes]] = []
    with Service(
        tmp_path,
        own_valkey.url,
        workers=2,
        zookeeper=zookeeper.hosts,
        zookeeper_root="/faults-d9",
        routes=ROUTES,
        session_timeout="4000",
        queues="8",
    ) as team:
        eventually(lambda: shares(team) == [4, 4], "both have their share")
        before = team.http.get("/v1/queues").json()["queues"]
        try:
            for _ in range(2):
                busy.append(subprocess.Popen(["nice", sys.executable, "-c", "while True: pass"]))
            ids = []
            end = time.monotonic() + 20
            while time.monotonic() < end:
                ids += ids_of(batch(team, [{"topic": GENERAL, "delayTime": n} for n in range(50)]))
                time.sleep(0.2)
        finally:
            for one in busy:
                one.kill()
                one.wait()
        drained(team)
        after = team.http.get("/v1/queues").json()["queues"]
        server = ServerUnderTest("valkey", own_valkey.url)
        found = arrivals(server.admin, GENERAL)
        server.close()
    said = "".join(worker.said() for worker in team.workers)
    assert '"lost"' not in said, said
    assert [one["epoch"] for one in after] == [one["epoch"] for one in before], said
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(ids, 1)


FORK = """
import os, sys, threading
from delayq import Client, Message
client = Client(sys.argv[1])
client.schedule(Message(topic="s.d11", id="parent-first", delay_time=3_600_000))  # it has a connection now

def work(name):
    for number in range(200):
        id = f"{name}-{number}"
        assert client.schedule(Message(topic="s.d11", id=id, body=id, delay_time=3_600_000)).id == id
        found = client.get(id)
        assert found is not None and found.id == id and found.record.payload == id.encode(), found
    for number in range(200):
        assert client.cancel(f"{name}-{number}").result == "cancelled"

children = []
for number in range(4):
    child = os.fork()
    if not child:
        try:
            work(f"child{number}")
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    children.append(child)
work("parent")
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_d11_forked_processes_do_not_share_connections(
    server: ServerUnderTest, service: Service, tmp_path: Path
) -> None:
    forked = [sys.executable, "-c", FORK, server.url]
    ran = subprocess.run(forked, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    others = [Service(tmp_path, server.url, workers=0, routes=ROUTES).api for _ in range(2)]  # as many as one likes
    urls = [f"http://127.0.0.1:{one.settings['api_port']}" for one in others]
    try:
        for one in others:
            one.start()
        with httpx2.Client(timeout=10) as http:
            for url in urls:
                eventually(lambda url=url: answers(http, url), "another API is ready")  # type: ignore[misc]  # a default binds it
            call = {"topic": LOCAL, "id": "d11", "delayTime": "1h"}
            statuses = [http.post(f"{url}/v1/messages", json=call).status_code for url in [*urls, service.url]]
        assert statuses == [201, 200, 200]
    finally:
        for one in others:
            one.stop()
    for id in ("d11", "parent-first"):
        assert service.http.delete(f"/v1/messages/{id}").json()["result"] == "cancelled"


def answers(http: httpx2.Client, url: str) -> bool:
    try:
        return bool(http.get(f"{url}/readyz").status_code == 200)
    except httpx2.HTTPError:
        return False
