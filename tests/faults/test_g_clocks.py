"""Wrong clocks: late is possible, early never is, and every answer stays true."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import stand_still, standing_still
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, now, wait_until
from tests.support.bent_clock import BentClock
from tests.support.servers import real_server
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

HOUR, TWO_MINUTES, TEN_MINUTES = 3_600_000, 120_000, 600_000


def valkey() -> Path:
    """The program of the embedded Valkey."""
    return EmbeddedServer()._binary


class Bent:
    """A service whose Redis goes by one clock, and whose API and worker go by another one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.redis, self.node = BentClock(folder, "redis"), BentClock(folder, "node")
        self.server = stack.enter_context(real_server("valkey", binary=self.redis.wrap(valkey())))
        self.service = Service(folder, self.server.url, routes=ROUTES, queues="4", retry_base="50")
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


def readiness(worker: OneProcess) -> list[str]:
    """What its /readyz complains of."""
    answer = httpx2.get(f"http://{LOCALHOST}:{worker.settings['worker_port']}/readyz", timeout=10)
    return list(answer.json().get("missing", []))


def wrong_clock(worker: OneProcess, side: str) -> None:
    """Wait until the worker complains of its clock."""
    eventually(lambda: any(side in sentence for sentence in readiness(worker)), f"the worker's clock is {side}")
    assert '"clock_skew"' in worker.said()


def test_g1_a_redis_an_hour_ahead_makes_nothing_early(bent: Bent) -> None:
    with standing_still(bent.worker.pid):  # however long this takes, nothing is delivered before it was cancelled
        start = now()
        dues = bent.schedule("g1", [start + 2_500 + 20 * n for n in range(50)])
        bent.step(HOUR)
        late = bent.service.schedule(LOCAL, id="g1-late", delayTime=500).json()
        assert late["dueMs"] >= start + HOUR + 500  # counted from a clock that is wrong
        assert bent.cancel("g1-late") == "cancelled"
        taken = list(dues)[::10]
        assert {bent.cancel(id) for id in taken} == {"in_flight"}  # by that clock they were due: no more can be said
    kept = set(dues) - set(taken)
    eventually(lambda: set(bent.arrived("g1")) >= kept, "all the others arrive")
    found = bent.arrived("g1")
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(kept, 1)
    assert [id for id in found if found[id][0] - HOUR < dues[id]] == []
    wrong_clock(bent.worker, "behind")
    bent.step(0)
    drained(bent.service)


def test_g2_a_redis_two_minutes_behind_makes_late_and_nothing_twice(bent: Bent) -> None:
    before = bent.schedule("g2b", [now()] * 20)
    drained(bent.service)
    with standing_still(bent.worker.pid):  # however long this takes, nothing is delivered before the clock is behind
        due = now() + 1_500
        dues = bent.schedule("g2", [due + n for n in range(50)])
        bent.step(-TWO_MINUTES)
    relative = [
        bent.service.schedule(f"{path}.g2r", id=f"g2r-{path}", delayTime=300).status_code for path in (GENERAL, LOCAL)
    ]
    assert relative == [201, 201]
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


@pytest.mark.parametrize("ppm", [500, 20_000])
@pytest.mark.parametrize("fast", ["redis", "node"])
def test_g5_clocks_that_drift_apart_make_late_by_no_more_than_that_and_nothing_early(
    bent: Bent, fast: str, ppm: int
) -> None:
    name, start = f"g5-{fast}-{ppm}", now()
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
    start = now()
    # None is due before the suspension, however long it takes to begin; all are after it.
    dues = bent.schedule("g6", [start + 30_000 + 2_000 * n for n in range(250)])
    assert bent.server.admin.xlen(f"{LOCAL}.g6") == 0
    before = bent.service.http.get("/v1/stats").json()["counters"]["retried"]
    wait_until(start + 1_000)
    processes, redis = bent.service.processes, bent.server.admin.info("server")["process_id"]
    for process in processes:
        process.signal(signal.SIGSTOP)
    stand_still(redis)
    time.sleep(0.7)
    for clock in (bent.redis, bent.node):
        clock.set(TEN_MINUTES)
    os.kill(redis, signal.SIGCONT)
    for process in processes:
        process.signal(signal.SIGCONT)
    drained(bent.service)
    assert {id: len(times) for id, times in bent.arrived("g6").items()} == dict.fromkeys(dues, 1)
    assert bent.service.http.get("/v1/stats").json()["counters"]["retried"] == before
