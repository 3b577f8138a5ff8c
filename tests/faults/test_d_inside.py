"""What goes wrong inside a worker: exceptions, dead threads, clients that hang, a log that cannot be written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.embedded.processes import free_port
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, ask, batch, drained, ids_of, metric
from tests.support.servers import ServerUnderTest, real_server
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

SABOTEUR = [sys.executable, "-m", "tests.faults.saboteur"]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerUnderTest]:
    with real_server("valkey") as running:
        yield running


def logged(worker: OneProcess, event: str) -> list[Any]:
    """The log lines of this event."""
    lines = [json.loads(line) for line in worker.said().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize(("fault", "event"), [("raise", "tick_failed"), ("die", "pull_job_died")])
def test_d5_exceptions_in_the_pull_thread_lose_nothing(
    tmp_path: Path, server: ServerUnderTest, fault: str, event: str
) -> None:
    server.flush()
    service = Service(tmp_path, server.url, routes=ROUTES, queues="4", window="200", retry_base="50")
    (worker,) = service.workers
    worker.command = [*SABOTEUR, fault]
    worker.settings["worker_port"] = str(free_port())
    with service:
        calls = [
            {"topic": topic, "id": f"{topic}-{n}", "delayTime": n} for topic in (GENERAL, LOCAL) for n in range(1_500)
        ]
        ids = ids_of(batch(service, calls))
        drained(service)
        failures = metric(worker, "delayq_pull_job_failures_total")
    general, local = arrivals(server.admin, GENERAL), arrivals(server.admin, LOCAL)
    assert general.keys() | local.keys() == set(ids)
    assert {len(times) for times in local.values()} == {1}
    # What a thread that died was sending, its successor sends again.
    assert {len(times) for times in general.values()} <= ({1} if fault == "raise" else {1, 2})
    assert logged(worker, event)
    assert (failures > 0) == (fault == "raise")
    assert worker.returncode == 0


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, ServerUnderTest, Path]]:
    """A service one of whose targets never answers while a file is there."""
    folder = tmp_path_factory.mktemp("hung")
    with real_server("valkey") as running, real_server("valkey", appendonly=False) as target:
        rows = [
            {"name": "hangs", "match": "h.*", "target": f"hang:{folder}/hang:redis+stream:{target.url}"},
            {"name": "general", "match": "g.*", "path": "general"},
            {"name": "streams"},
        ]
        service = Service(
            folder,
            running.url,
            routes=json.dumps(rows),
            queues="4",
            send_timeout="500",
            retry_base="50",
            retry_cap="300",
            stuck_after="3000",
        )
        (worker,) = service.workers
        worker.command = SABOTEUR
        worker.settings["worker_port"] = str(free_port())
        with service:
            yield service, running, folder / "hang"
        assert [one.returncode for one in service.processes] == [0, 0]


def test_d6_a_client_of_a_target_that_hangs_is_given_up_and_no_other_topic_notices(
    hung: tuple[Service, ServerUnderTest, Path],
) -> None:
    service, server, hang = hung
    hang.touch()
    try:
        stuck = ids_of(batch(service, [{"topic": "h.d6", "id": f"d6-{n}", "delayTime": 0} for n in range(200)]))
        eventually(lambda: logged(service.workers[0], "send_hung"), "a send is given up")
        others = [
            {"topic": topic, "id": f"{topic}-d6-{n}", "delayTime": n} for topic in (GENERAL, LOCAL) for n in range(200)
        ]
        ids = ids_of(batch(service, others))
        eventually(lambda: set(ids) <= set(arrivals(server.admin, GENERAL, LOCAL)), "the others' messages arrive")
        assert hang.exists() and service.http.get("/v1/messages/d6-0").status_code == 200
    finally:
        hang.unlink()
    drained(service)
    states = {service.http.get(f"/v1/messages/{id}").json()["state"] for id in stuck[:50]}
    assert states == {"delivered"}
    assert service.http.get("/v1/stats").json()["dead"] == 0


def test_d13_a_queue_that_hands_out_messages_of_which_none_is_confirmed_raises_an_alarm(
    hung: tuple[Service, ServerUnderTest, Path],
) -> None:
    service, _, hang = hung
    (worker,) = service.workers
    eventually(lambda: ask(worker, "/readyz").status_code == 200, "the worker is ready")
    assert metric(worker, "delayq_stuck_queues") == 0
    hang.touch()
    try:
        ids_of(batch(service, [{"topic": "h.d13", "id": f"d13-{n}", "delayTime": 0} for n in range(100)]))
        eventually(lambda: ask(worker, "/readyz").status_code == 503, "the worker is not ready")
        assert any("is stuck" in sentence for sentence in ask(worker, "/readyz").json()["missing"])
        assert metric(worker, "delayq_stuck_queues") > 0
        assert ask(worker, "/livez").status_code == 200
        assert logged(worker, "stuck_queue")
    finally:
        hang.unlink()
    drained(service)
    eventually(lambda: ask(worker, "/readyz").status_code == 200, "the worker is ready again")
    assert logged(worker, "stuck_queue_over")
    assert metric(worker, "delayq_stuck_queues") == 0


def test_d10_a_log_on_a_full_disk_costs_log_lines_and_nothing_else(tmp_path: Path, server: ServerUnderTest) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full, which answers every write as a full disk does: try it on Linux")
    server.flush()
    service = Service(tmp_path, server.url, routes=ROUTES, queues="4", log_level="debug")
    for one in service.processes:
        one.log = full
    with service:
        calls = [
            {"topic": topic, "id": f"{topic}-{n}", "delayTime": n} for topic in (GENERAL, LOCAL) for n in range(500)
        ]
        ids = ids_of(batch(service, calls))
        server.admin.client_kill_filter(_type="pubsub", skipme=True)  # something to log
        assert service.schedule("a b", delayTime=0).status_code == 400
        drained(service)
    assert {id: len(times) for id, times in arrivals(server.admin, GENERAL, LOCAL).items()} == dict.fromkeys(ids, 1)
    assert [one.returncode for one in service.processes] == [0, 0]
