"""Wrong clocks: late is possible, early never is, and every answer stays true."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from testbed.process import stand_still, standing_still
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, now, wait_until
from tests.faults.house import readiness
from tests.support.bent_clock import BentClock
from tests.support.servers import real_server
from tests.support.service import ROOT, OneProcess, Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

HOUR, TWO_MINUTES, TEN_MINUTES = 3_600_000, 120_000, 600_000


class Bent:
    """A service whose Redis goes by one clock, and whose API and worker go by another one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.redis, self.node = BentClock(folder, "redis"), BentClock(folder, "node")
        self.server = stack.enter_context(real_server("valkey", binary=self.redis.wrap(EmbeddedServer().binary)))
        self.service = Service(
            folder, self.server.url, routes=ROUTES, queues="4", retry_base="50", redis_timeout=str(REDIS_TIMEOUT)
        )
        for process in self.service.processes:
            process.environment = dict(self.node.environment)
        self.worker.settings["worker_port"] = str(free_port())
        stack.enter_context(self.service)

    @property
    def worker(self) -> OneProcess:
        return self.service.workers[0]

    def schedule(self, name: str, dues: Sequence[int]) -> dict[str, int]:
        """Messages of both paths with these dues; the dues by id."""
        calls = {f"{path}.{name}-{n}": due for path in (GENERAL, LOCAL) for n, due in enumerate(dues)}
        rows = [{"topic": id.rpartition("-")[0], "id": id, "expectDate": due} for id, due in calls.items()]
        ids_of(batch(self.service, rows))
        return calls

    def step(self, ms: int) -> None:
        """Step the clock of Redis, which looks at it a few times a second only."""
        self.redis.set(ms)
        eventually(lambda: abs(self.server.admin.time()[0] * 1000 - self.redis.now()) < 5_000, "Redis has seen it")

    def arrived(self, name: str) -> dict[str, list[int]]:
        """When, by the clock of Redis."""
        return arrivals(self.server.admin, f"{GENERAL}.{name}", f"{LOCAL}.{name}")

    def cancel(self, id: str) -> str:
        return str(self.service.http.delete(f"/v1/messages/{id}").json()["result"])


@pytest.fixture(scope="module")
def bent_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bent]:
    with ExitStack() as stack:
        yield Bent(tmp_path_factory.mktemp("bent"), stack)


@pytest.fixture
def bent(bent_service: Bent) -> Iterator[Bent]:
    """The service, by true clocks."""
    yield bent_service
    for clock in (bent_service.redis, bent_service.node):
        clock.set(0)


def test_g1_a_redis_an_hour_ahead_makes_nothing_early(bent: Bent) -> None:
    """G1 (Redis clock +1 h): Nothing is early.

    Relative delays requested meanwhile are long; cancels of due messages are `inFlight`; workers complain.

    G4 (fail-over to a replica with another clock): As G1 and G2: nothing is early; messages are late by the
    difference.

    G1: `pull` uses the earlier of two clocks. Relative delays requested meanwhile are an hour long.
    """
    with standing_still(bent.worker.pid):  # however long this takes, nothing is delivered before it was cancelled
        start = now()
        dues = bent.schedule("g1", [start + 2_500 + 20 * n for n in range(50)])
        bent.step(HOUR)
        late = bent.service.schedule(LOCAL, id="g1-late", delayTime=500).json()
        assert late["dueMs"] >= start + HOUR + 500  # counted from a clock that is wrong
        assert bent.cancel("g1-late") == "cancelled"
        taken = list(dues)[::10]
        assert {bent.cancel(id) for id in taken} == {"inFlight"}  # by that clock they were due: no more can be said
    kept = set(dues) - set(taken)
    eventually(lambda: set(bent.arrived("g1")) >= kept, "all the others arrive")
    found = bent.arrived("g1")
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(kept, 1)
    assert [id for id in found if found[id][0] - HOUR < dues[id]] == []
    eventually(lambda: "behind" in readiness(bent.worker)[1], "the worker's clock is behind")
    assert '"clock_skew"' in bent.worker.said()
    bent.step(0)
    drained(bent.service)


def test_g2_a_redis_two_minutes_behind_makes_late_and_nothing_twice(bent: Bent) -> None:
    """G2 (Redis clock −2 min): Messages are late by that; nothing repeats, and cancels stay true."""
    before = bent.schedule("g2b", [now()] * 20)
    drained(bent.service)
    with standing_still(bent.worker.pid):  # however long this takes, nothing is delivered before the clock is behind
        due = now() + 1_000
        dues = bent.schedule("g2", [due + n for n in range(50)])
        bent.step(-TWO_MINUTES)
    for path in (GENERAL, LOCAL):
        assert bent.service.schedule(f"{path}.g2r", id=f"g2r-{path}", delayTime=300).status_code == 201
    eventually(lambda: len(bent.arrived("g2r")) == 2, "relative delays are kept")
    wait_until(due + 1_200)
    assert bent.arrived("g2") == {}
    taken = list(dues)[::10]
    assert {bent.cancel(id) for id in taken} == {"cancelled"}
    again = [{"topic": id.rpartition("-")[0], "id": id, "expectDate": due} for id, due in before.items()]
    assert {one["state"] for one in batch(bent.service, again)} == {"delivered"}
    bent.step(0)
    drained(bent.service)
    assert {id: len(times) for id, times in bent.arrived("g2").items()} == dict.fromkeys(set(dues) - set(taken), 1)
    assert {id: len(times) for id, times in bent.arrived("g2b").items()} == dict.fromkeys(before, 1)


@pytest.mark.parametrize("fast", ["redis", "node"])
def test_g5_clocks_that_drift_apart_make_late_by_no_more_than_that_and_nothing_early(bent: Bent, fast: str) -> None:
    """G5 (leap smear, slew 500 ppm): The slower clock decides: nothing is early, or later than the difference."""
    name, start, ppm = f"g5-{fast}", now(), 20_000
    bent.redis.slew(ppm if fast == "redis" else -ppm)
    bent.node.slew(-ppm if fast == "redis" else ppm)
    dues = bent.schedule(name, [start + 300 + 15 * n for n in range(100)])
    eventually(lambda: len(bent.arrived(name)) == len(dues), "all arrive")
    found = bent.arrived(name)
    assert {len(times) for times in found.values()} == {1}
    for id, (at,) in found.items():
        apart = 2 * ppm * (at - start) // 1_000_000 - 2 if fast == "redis" else 0
        assert at >= dues[id] + max(0, apart)  # by the slower one of the two


def test_g6_after_a_suspension_of_ten_minutes_all_that_is_overdue_comes_once(bent: Bent) -> None:
    """G6 (VM suspend 10 min): All overdue messages are delivered once, and none is retried."""
    start = now()
    # None is due before the suspension, however long it takes to begin; all are after it.
    dues = bent.schedule("g6", [start + 60_000 + 2_000 * n for n in range(250)])
    assert bent.server.admin.xlen(f"{LOCAL}.g6") == 0
    before = bent.service.http.get("/v1/queues").json()["total"]["counters"]["retried"]
    processes, redis = bent.service.processes, bent.server.admin.info("server")["process_id"]
    for process in processes:
        process.signal(signal.SIGSTOP)
    stand_still(redis)
    threading.Event().wait(0.7)
    for clock in (bent.redis, bent.node):
        clock.set(TEN_MINUTES)
    os.kill(redis, signal.SIGCONT)
    for process in processes:
        process.signal(signal.SIGCONT)
    drained(bent.service)
    assert {id: len(times) for id, times in bent.arrived("g6").items()} == dict.fromkeys(dues, 1)
    assert bent.service.http.get("/v1/queues").json()["total"]["counters"]["retried"] == before


SCHEDULE = """
import sys
from delayq import Client, Message
with Client(sys.argv[1]) as client:
    for number in range(20):
        message = Message(topic="s.t.f14", id=f"f14-{sys.argv[2]}-{number}", delay_time=700)
        print(client.schedule(message).due)
"""


def test_f14_producers_with_wrong_clocks_get_the_dues_that_they_asked_for(bent: Bent, tmp_path: Path) -> None:
    """F14 (two producers, clocks ± 1 h): Relative delays use the clock of Redis: a producer's clock does not matter."""

    def redis_now() -> int:
        seconds, micro = bent.server.admin.time()
        return int(seconds * 1000 + micro // 1000)

    for name, wrong in (("ahead", HOUR), ("behind", -HOUR)):
        clock = BentClock(tmp_path, name)
        clock.set(wrong)
        producer, env = [sys.executable, "-c", SCHEDULE, bent.server.url, name], {"PYTHONPATH": str(ROOT)}
        before = redis_now()
        ran = subprocess.run(producer, env=env | dict(clock.environment), capture_output=True, text=True, check=False)
        after = redis_now()
        assert ran.returncode == 0, ran.stderr
        dues = [int(line) for line in ran.stdout.split()]
        assert len(dues) == 20
        assert all(before + 700 <= due <= after + 700 for due in dues)
    drained(bent.service)
    assert len(arrivals(bent.server.admin, "s.t.f14")) == 40
