"""Which pull jobs run, and when a queue is given back, whatever coordinator and jobs do."""

from __future__ import annotations

from typing import cast

import pytest
import structlog

from coordinator import Claim, CoordinatorError, LocalCoordinator
from coordinator.local import HOLD
from delayq.base.errors import StoreUnavailable
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from workers.node.ownership import STUCK, Ownership
from workers.queue.pull_job import PullJob

DRAIN = 2_000


class Job:
    """A pull job that ends when it is told to."""

    def __init__(self, claim: Claim, clock: ManualClock) -> None:
        self.claim = claim
        self.epoch = claim.epoch
        self.alive = False
        self.fenced = False
        self.finished = False
        self.stopped = False
        self.ends_at_once = True
        self.ticked_at = clock.monotonic()

    def start(self) -> None:
        self.alive = True

    def stop(self) -> None:
        self.stopped = True
        if self.ends_at_once:
            self.alive = False

    def join(self, timeout_ms: int) -> bool:
        return not self.alive


class Spread:
    """A coordinator whose wishes the test sets."""

    connected = True

    def __init__(self) -> None:
        self.wanted: frozenset[int] = frozenset()
        self.taken: set[int] = set()
        self.failing: set[int] = set()
        self.broken: set[int] = set()
        self.said: list[str] = []
        self.away = False
        self._number = 0

    def nothing(self, *given: object, **named: object) -> None:
        """It is told, and does nothing: `wanted` says what is assigned."""

    start = watch = share = redis_reachable = stop = nothing

    def assigned(self) -> frozenset[int]:
        return self.wanted

    def reason(self, queue: int) -> str:
        return f"queue {queue} is for another node"

    def claim(self, queue: int) -> Claim | None:
        if queue in self.failing:
            raise StoreUnavailable("its part of Redis is away")
        if queue in self.taken:
            return None
        if queue in self.broken:
            raise CoordinatorError("away")
        self._number += 1
        return Claim(queue, str(self._number))

    def fenced(self, queue: int, epoch: str) -> None:
        self.said.append(f"fenced {queue} {epoch}")

    def release(self, queue: int, epoch: str) -> None:
        if self.away:
            raise CoordinatorError("away")
        self.said.append(f"release {queue} {epoch}")


def start(job: PullJob) -> None:
    """Let somebody move it."""
    cast(Job, job).start()


class House:
    """An Ownership, with what it talks to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.spread = Spread()
        self.made: list[Job] = []
        self.ownership = Ownership(self.spread, self._make, start, self.clock, drain=DRAIN)

    def _make(self, claim: Claim) -> PullJob:
        self.made.append(Job(claim, self.clock))
        return cast(PullJob, self.made[-1])

    def want(self, *queues: int, reachable: bool = True) -> bool:
        """Adjust, and whether that changed anything."""
        self.spread.wanted = frozenset(queues)
        before = self.epochs
        self.ownership.adjust(reachable=reachable)
        return self.epochs != before

    @property
    def epochs(self) -> dict[int, str]:
        return {queue: job.epoch for queue, job in self.ownership.jobs.items()}


@pytest.fixture
def house() -> House:
    return House()


def test_assigned_queues_get_jobs_in_one_line_of_the_log_and_a_look_without_news_changes_nothing(house: House) -> None:
    house.spread.taken = {3}
    with structlog.testing.capture_logs() as logs:
        assert house.want(0, 1, 2, 3, 5)
        assert not house.want(0, 1, 2, 3, 5)
    assert house.epochs == {0: "1", 1: "2", 2: "3", 5: "4"}
    assert house.ownership.since == dict.fromkeys((0, 1, 2, 5), house.clock.now())
    assert logs == [
        {"event": "owner", "log_level": "info", "queues": "0-2,5", "epochs": {"1": "0", "2": "1", "3": "2", "4": "5"}}
    ]
    house.spread.taken = set()  # a queue that another one held is asked for again
    assert house.want(0, 1, 2, 3, 5)
    assert house.epochs[3] == "5"


def test_the_line_of_a_round_that_broke_off_has_what_was_started(house: House) -> None:
    house.spread.broken = {2}
    with structlog.testing.capture_logs() as logs, pytest.raises(CoordinatorError):
        house.want(0, 1, 2, 3)
    assert [one["queues"] for one in logs] == ["0-1"]


def test_queues_that_cannot_be_claimed_keep_no_other_one_waiting(house: House) -> None:
    house.spread.failing = {0, 2}
    for owned in ([], [1], [1, 3], [1, 3]):
        house.want(0, 1, 2, 3)
        assert sorted(house.ownership.jobs) == owned
    house.spread.failing = {0}
    for _ in range(2):  # those that failed take turns
        house.want(0, 1, 2, 3)
    assert sorted(house.ownership.jobs) == [1, 2, 3]


def test_queues_that_are_let_go_are_logged_once_with_the_reason(house: House) -> None:
    house.want(0, 1, 2, 3)
    for job in house.made:
        job.ends_at_once = False
    with structlog.testing.capture_logs() as logs:
        house.want(0, 1, 3)
        house.want(0, 1, 3)
        house.spread.wanted = frozenset()
        house.ownership.let_go(lambda: house.clock.advance(DRAIN))
    told = [(line["queues"], line["reason"]) for line in logs if line["event"] == "let_go"]
    assert told == [
        ("2", "queue 2 is for another node"),
        ("0-1,3", "this node stops"),
    ]


def test_a_queue_that_goes_is_given_back_when_its_job_has_ended(house: House) -> None:
    house.want(0, 1)
    house.made[1].ends_at_once = False
    house.clock.advance(7)
    house.want(0)
    assert house.made[1].stopped
    before = (house.ownership.ending, house.ownership.handed_over, list(house.spread.said))
    assert before == (True, None, [])
    house.made[1].alive = False
    assert house.want(0)
    assert house.spread.said == ["release 1 2"]
    assert house.ownership.handed_over == house.clock.now()
    assert not house.ownership.ending


def test_a_job_that_does_not_end_is_given_up_after_the_drain_time(house: House) -> None:
    """D4: The next owner delivers the hung messages, which repeat if they had arrived."""
    house.want(0)
    house.made[0].ends_at_once = False
    house.want()
    house.clock.advance(DRAIN - 1)
    house.want()
    assert house.spread.said == []
    house.clock.advance(1)
    house.want()
    assert house.spread.said == ["release 0 1"]
    assert house.epochs == {}
    house.want(7)
    house.made[1].ends_at_once = False
    house.want(reachable=False)
    assert house.spread.said[1:] == ["release 7 2"], "while Redis is out of reach it goes at once"
    assert house.made[1].stopped


def test_a_fenced_job_is_told_to_the_coordinator_before_the_release_and_claims_anew(house: House) -> None:
    house.want(0)
    house.made[0].fenced = True
    house.made[0].alive = False
    assert house.want(0)
    assert house.spread.said == ["fenced 0 1", "release 0 1"]
    assert house.epochs == {0: "2"}
    assert house.ownership.handed_over is None


def test_a_dead_or_stuck_thread_costs_its_queue_a_new_epoch(house: House) -> None:
    """C12 (node alive in ZK, its pull thread dead): Half a second later another thread pulls.

    A thread stuck for 30 s loses its queues to new epochs.

    C12, D5: The queues are released and claimed under new epochs for another thread, and the old epochs are fenced.
    """
    house.want(0, 1)
    house.made[0].alive = False
    house.made[1].ends_at_once = False
    house.made[1].ticked_at -= STUCK + 1
    house.want(0, 1)
    assert house.made[1].stopped
    assert sorted(house.spread.said) == ["release 0 1", "release 1 2"]
    assert house.epochs == {0: "3", 1: "4"}


def test_a_release_that_failed_is_repeated_before_anything_is_claimed_and_counted_once(house: House) -> None:
    house.want(0, 1)
    house.made[0].fenced = True
    house.made[0].alive = False
    house.made[0].finished = True
    house.spread.away = True
    for _ in range(2):
        with pytest.raises(CoordinatorError):
            house.want(1, 2)
        assert house.ownership.ending
        assert house.epochs.keys() <= {0, 1}
    house.spread.away = False
    house.want(0, 1, 2)
    assert [said for said in house.spread.said if said.startswith("release")] == ["release 0 1"]
    assert house.epochs == {0: "3", 1: "2", 2: "4"}
    assert (house.ownership.claims, house.ownership.fenced) == (4, 1)


class SideBySide:
    """Two nodes without ZooKeeper on one Redis: real claims, and jobs that pull when the test says so."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.ownerships: list[Ownership] = []

    def join(self) -> None:
        coordinator = LocalCoordinator(self.store, range(4), 0, self.clock)
        self.ownerships.append(Ownership(coordinator, self._make, start, self.clock, drain=DRAIN))

    def _make(self, claim: Claim) -> PullJob:
        return cast(PullJob, Job(claim, self.clock))

    def step(self) -> None:
        """Every job pulls, then every node does its round, half a second after the one before."""
        self.clock.advance(500)
        for ownership in self.ownerships:
            for job in cast("dict[int, Job]", ownership.jobs).values():
                job.ticked_at = self.clock.monotonic()
                if self.store.run(commands.pull(KEYS.queue(job.claim.queue), job.epoch, offset=0, room=1)) is None:
                    job.fenced = job.finished = True
                    job.alive = False
        for ownership in self.ownerships:
            ownership.adjust(reachable=True)

    def owners(self) -> list[int]:
        """How many running jobs each queue has under the epoch that Redis has."""
        stored = [self.store.run(commands.stored_epoch(KEYS.queue(queue))) for queue in range(4)]
        jobs = [ownership.jobs.get(queue) for queue in range(4) for ownership in self.ownerships]
        return [
            sum(job is not None and job.alive and job.epoch == epoch for job in jobs[2 * queue : 2 * queue + 2])
            for queue, epoch in enumerate(stored)
        ]


def test_two_nodes_side_by_side_without_zookeeper_never_leave_a_queue_without_an_owner(store: Store) -> None:
    """C18: A fenced worker leaves the queue to the other one for 15 s."""
    pair = SideBySide(store)
    pair.join()
    pair.step()
    pair.join()
    for _ in range(2 * 60):
        pair.step()
        assert pair.owners() == [1, 1, 1, 1]
    turns = pair.ownerships[0].claims + pair.ownerships[1].claims
    assert turns <= 4 * (2 + 60 * 1_000 // HOLD), "they take turns, and do not fight"


@pytest.mark.parametrize("away", [False, True])
def test_letting_go_gives_each_queue_back_as_soon_as_its_job_has_ended(house: House, away: bool) -> None:
    """D3: The worker is not ready any more (`/readyz`), pulls no more, finishes and acks its sends, and releases each
    queue as soon as its sends are done."""
    house.want(0, 1, 2)
    house.made[1].ends_at_once = False
    house.spread.away = away
    seen: list[list[str]] = []

    def meanwhile() -> None:
        seen.append(list(house.spread.said))
        house.clock.advance(DRAIN // 4)

    house.ownership.let_go(meanwhile)
    assert all(job.stopped for job in house.made)
    assert house.epochs == {1: "2"}  # it never ended
    assert away or sorted(seen[1]) == ["release 0 1", "release 2 3"]
    assert away or house.spread.said[-1] == "release 1 2"
