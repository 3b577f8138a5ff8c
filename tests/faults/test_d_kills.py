"""Processes that are killed at the worst moment, or get no memory, no descriptors or no log."""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import httpx2
import pytest

from tests.faults.flow import left, now, patiently, refused
from tests.faults.house import QUEUES, WINDOW, House
from tests.support.clusters import id_in
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("house"),
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of running processes, as Linux can"),
]

MEGABYTE = 1024 * 1024


def test_d1_what_was_confirmed_and_not_acked_when_a_worker_is_killed_comes_once_more(house: House) -> None:
    """D1 (SIGKILL between confirm and ack): Confirmed messages repeat with the same id, at most a window per queue.

    Nothing is lost.
    """
    worker = house.workers[0]
    with house.sink_paused():
        ids = house.schedule("sink.d1", 200)
        house.wait_until_sent_to(len(house.workers))
        house.to_worker.black_hole()  # from here on no ack gets through
    queue = min(house.of(worker))
    confirmed = {id for id in ids if house.http.get(f"/v1/messages/{id}").json()["queue"] == queue}
    patiently(lambda: confirmed & house.arrived("sink.d1").keys(), "the target has confirmed some")
    house.kill(worker)
    house.to_worker.heal()
    house.wait_until_done()
    found = house.arrived("sink.d1")
    assert found.keys() == set(ids)
    assert max(len(times) for times in found.values()) == 2
    assert 0 < sum(len(times) - 1 for times in found.values()) <= QUEUES * WINDOW


def limit(process: OneProcess, which: int, most: int) -> None:
    """Limit a running process; only the soft limit, so that it can be lifted again."""
    _, hard = resource.prlimit(process.pid, which)
    resource.prlimit(process.pid, which, (most, hard))


def virtual(process: OneProcess) -> int:
    """The bytes of its address space."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()


def test_d7_a_worker_without_memory_loses_nothing(house: House) -> None:
    """D7 (process memory exhaustion): At most 32 MB of a queue are in flight.

    A worker without memory retries, or dies like a killed one.
    """
    worker = house.workers[1]
    queues = sorted(house.of(worker))
    ids = [id_in(queues[number % len(queues)], f"d7-{number}") for number in range(80)]
    due = now() + 3_000
    messages = [{"topic": "sink.d7", "id": id, "body": "x" * 500_000, "expectDate": due} for id in ids]
    limit(worker, resource.RLIMIT_AS, virtual(worker) + 16 * MEGABYTE)  # a pull alone may bring 8
    for start in range(0, len(messages), 8):
        answer = house.http.post("/v1/messages:batch", json={"messages": messages[start : start + 8]})
        assert {one["status"] for one in answer.json()["results"]} == {201}
    # It gets through, struggles on, or dies of it.
    seen = len(house.said(worker))
    patiently(lambda: not worker.alive or not left(house.service) or len(house.said(worker)) > seen, "it tries")
    house.kill(worker)
    worker.start()  # as whoever supervises it does
    house.wait_until_done()
    found = house.arrived("sink.d7")
    assert found.keys() == set(ids)
    assert max(len(times) for times in found.values()) <= 2
    house.sink.server.admin.delete("sink.d7")


def test_d8_processes_without_descriptors_refuse_and_recover_by_themselves(house: House) -> None:
    """D8 (fd exhaustion): The API answers 503 with `Retry-After`; workers retry (`redis_trouble`).

    Both recover by themselves.

    D8: The API refuses new connections, and answers 503 on those that it has.
    """
    api, worker, queue = house.service.api, house.workers[1], min(house.of(house.workers[1]))
    before, id = id_in(queue, "d8-before"), id_in(queue, "d8")
    assert house.service.schedule("d8", id=before, delayTime="1h").status_code == 201
    for process in (api, worker):
        limit(process, resource.RLIMIT_NOFILE, 3)  # what is open stays open, nothing else can be opened
    house.admin.client_kill_filter(_type="normal", skipme=True)
    eventually(lambda: "redis_trouble" in house.said(worker), "the worker says so")
    answer = house.service.schedule("d8", id=id, delayTime=0)  # by a connection that was open before
    assert refused(answer)
    with pytest.raises(httpx2.HTTPError):  # nobody accepts it: no answer ever comes
        httpx2.get(f"{house.service.url}/livez", timeout=2)
    for process in (api, worker):
        limit(process, resource.RLIMIT_NOFILE, 1_024)
    patiently(house.service.ready, "the API is ready again")
    patiently(lambda: house.service.schedule("d8", id=id, delayTime=0).status_code in (200, 201), "it accepts again")
    eventually(lambda: len(house.arrived("d8").get(id, ())) == 1, "it delivers again")
    assert house.http.delete(f"/v1/messages/{before}").json()["result"] == "cancelled"
    house.wait_until_done()


def test_d10_a_log_on_a_full_disk_costs_log_lines_and_nothing_else(house: House) -> None:
    """D10: No thread waits for the log or fails because of it: neither for a full disk nor for a pipe that nobody
    reads.

    After SIGTERM the last lines have 2 s, then the process ends.
    """
    worker, full = house.workers[2], Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full, which answers every write as a full disk does: try it on Linux")
    log = worker.log
    assert worker.stop() == 0
    try:
        worker.log = full
        worker.start()
        patiently(house.service.owned, "it has queues again")
        with house.load("d10") as load:
            load.wait_for(200)
            house.admin.client_kill_filter(_type="pubsub", skipme=True)  # something to log
            load.wait_for(100)
        house.expect(load)
        assert worker.stop() == 0
    finally:
        worker.log = log


def test_d12_when_all_processes_die_at_once_they_come_back_in_any_order_and_lose_nothing(house: House) -> None:
    """C6 (all of ZK down at start-up): The API accepts; workers wait.

    Delivery begins with ZooKeeper.

    C9 (all nodes die, one returns): It takes all queues after the other sessions expire. Messages in flight may
    repeat.

    D12 (host reboot (all processes)): All return in any order by themselves. Nothing is lost; messages in flight may
    repeat.

    ZooKeeper comes last (C6), and of the workers first one alone, which takes all queues (C9).
    """
    chance, service = random.Random(12), house.service
    topics, start = ("sink.d12", "d12"), now() + 500
    calls = [
        {"topic": topic, "id": f"{topic}-{n}", "expectDate": start + n, "body": "b"}
        for topic in topics
        for n in range(1_500)
    ]
    for n in range(0, len(calls), 500):
        answer = house.http.post("/v1/messages:batch", json={"messages": calls[n : n + 500]})
        assert {one["status"] for one in answer.json()["results"]} == {201}
    eventually(lambda: house.admin.xlen("d12"), "in the middle of it")
    sessions = [house.session_of(worker) for worker in house.workers]
    kills = [one.kill for one in service.processes] + [house.redis.kill, house.keeper.kill]
    for kill in chance.sample(kills, len(kills)):
        kill()
    last = house.workers[1]
    starts = [service.api.start, last.start, house.redis.start]
    for begin in chance.sample(starts, len(starts)):
        begin()
    patiently(service.ready, "the API is ready")
    ids = house.schedule("sink.d12.alone", 100)
    patiently(lambda: "waiting_for_coordinator" in house.said(last), "the worker says what it waits for")
    assert house.sink.arrivals("sink.d12.alone") == []
    house.keeper.start()
    for session in sessions:
        house.end_session(session)
    patiently(lambda: house.of(last) == set(range(QUEUES)), "it owns them all")
    for worker in house.workers:
        worker.start()
    patiently(service.owned, "every queue has an owner and every worker a queue")
    house.wait_until_done()
    house.sink.expect("sink.d12.alone", ids)
    general, local = house.arrived("sink.d12"), house.arrived("d12")
    assert general.keys() | local.keys() == {str(call["id"]) for call in calls}
    assert {len(times) for times in local.values()} == {1}
    assert max(len(times) for times in general.values()) <= 2
    assert sum(len(times) - 1 for times in general.values()) <= QUEUES * WINDOW
