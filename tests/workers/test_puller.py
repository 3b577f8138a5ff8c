"""The thread that pulls: fairness, wakes, failures and stops, by a clock that the test moves."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import pytest

from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.queue.pull_job import PullJob
from workers.queue.puller import HUNG, SLICES, Puller, Pullers

HERE, THERE = ("one", 1), ("two", 2)
FAR = 500.0
JOIN = 60_000  # ms; pytest ends a test before


def command(name: str, number: int) -> Command[Any]:
    """A command whose answer says whose it is."""
    return plain(f"{name}-{number}", read=lambda reply: reply)


class Begun(list[str]):
    """A packet under way."""

    on_its_way = True


class Servers:
    """A store that answers each command by its name; `meanwhile` happens while a packet is under way."""

    def __init__(self) -> None:
        self.packets: list[list[str]] = []
        self.under_way = self.most_under_way = 0
        self.meanwhile: Callable[[], None] | None = None
        self.places: dict[str, tuple[str, int]] = {}

    def begin(self, commands: Iterable[Command[Any]], *, within: float) -> Begun:
        assert within < HUNG / 2
        self.packets.append([str(one.args[0]) for one in commands])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return Begun(self.packets[-1])

    def end(self, begun: Begun) -> list[Any]:
        self.under_way -= 1
        if self.meanwhile is not None:
            self.meanwhile()
        return list(begun)

    def server_of(self, key: str) -> tuple[str, int] | None:
        return self.places.get(key)


class _Keys:
    def __init__(self, name: str) -> None:
        self.state = self.tag = name


class Job:
    """A pull job of which nothing is real but what its mover sees."""

    def __init__(self, name: str, commands: int = 1, *, in_backlog: bool = False, looks_at: float = 0.0) -> None:
        self.keys = _Keys(name)
        self.name = name
        self.in_backlog = in_backlog
        self.looks_at = looks_at
        self.pause = 0.0 if in_backlog else FAR
        self.presses = self.finished = self.ended = False
        self.along_from = float("inf")
        self.breaks = ""
        self.resets = True
        self.asked: list[bool] = []  # whether it might take from its backlog
        self.told: list[list[str]] = []
        self.failures = 0
        self._commands = commands
        self._wake_puller: Callable[[], None] = lambda: None

    def pulled_by(self, wake: Callable[[], None], lives: Callable[[], bool]) -> None:
        self._wake_puller = wake

    def wake(self) -> None:
        self.presses = True
        self._wake_puller()

    def wants_to_look(self, now: float) -> bool:
        return self.presses or now >= self.looks_at

    def goes_along(self, now: float) -> bool:
        return now >= self.along_from

    def ask(self, *, backlog: bool) -> Sequence[Command[Any]]:
        self.asked.append(backlog)
        self.presses = False
        if self.breaks == "ask":
            raise RuntimeError("broken on purpose")
        return [command(self.name, number) for number in range(self._commands)]

    def take(self, answers: Sequence[Any]) -> None:
        if self.breaks == "take":
            raise RuntimeError("broken on purpose")
        self.told.append(list(answers))
        self.looks_at += self.pause

    def failed(self) -> None:
        self.failures += 1
        self.looks_at += FAR
        if not self.resets:
            raise RuntimeError("broken on purpose")

    def end(self) -> None:
        self.ended = True


class NotingClock(ManualClock):
    """Nobody waits: it notes for how long somebody would."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        self.waits.append(timeout_ms)
        return False


@pytest.fixture
def servers() -> Servers:
    return Servers()


def made(*jobs: Job, hand_over: Callable[[PullJob], None] | None = None) -> tuple[Puller, Servers, NotingClock]:
    """A puller with these jobs, whose thread does not run."""
    servers, clock = Servers(), NotingClock()
    puller = Puller("puller", cast(Store, servers), clock, hand_over=hand_over)
    for job in jobs:
        puller.add(cast(PullJob, job))
    return puller, servers, clock


def test_all_that_want_to_look_go_in_one_packet_and_each_gets_its_own_answers() -> None:
    jobs = [Job("a"), Job("b", 3), Job("later", looks_at=1.0), Job("c", 0), Job("d", 2)]
    puller, servers, clock = made(*jobs)
    puller.round()
    assert servers.packets == [["a-0", "b-0", "b-1", "b-2", "d-0", "d-1"]]
    for job in (jobs[0], jobs[1], jobs[3], jobs[4]):
        assert job.told == [[f"{job.name}-{number}" for number in range(job._commands)]], "it gets its own answers"
    clock.advance(1)
    puller.round()
    assert servers.packets[1:] == [["later-0"]]


def test_backlogs_take_turns_and_few_at_a_time() -> None:
    jobs = [Job(f"b{number}", in_backlog=True) for number in range(2 * SLICES + 1)]
    puller, servers, _ = made(*jobs)
    for _ in range(2 * len(jobs)):
        puller.round()
        assert len(servers.packets[-1]) == SLICES
    assert {len(job.asked) for job in jobs} == {2 * SLICES}
    assert servers.most_under_way == 2


def test_a_backlog_alone_has_one_packet_under_way() -> None:
    jobs = [Job("b", in_backlog=True), Job("fresh")]
    puller, servers, _ = made(*jobs)
    for number in range(1, 4):
        puller.round()
        assert len(jobs[0].told) == number
    assert servers.most_under_way == 1


def test_what_is_fresh_waits_for_no_turn_and_goes_ahead() -> None:
    jobs = [Job(f"b{number}", in_backlog=True) for number in range(3 * SLICES)]
    fresh, pressed = Job("fresh"), Job("pressed", in_backlog=True)
    puller, servers, _ = made(*jobs, fresh, pressed)
    pressed.presses = True
    puller.round()
    assert servers.packets[0][:2] == ["fresh-0", "pressed-0"]
    assert len(servers.packets[0]) == 2 + SLICES
    assert (fresh.asked, pressed.asked) == ([True], [False])
    puller.round()
    assert len(servers.packets[1]) == SLICES


def test_a_wake_while_a_packet_is_under_way_is_not_lost() -> None:
    first, second = Job("first"), Job("second", looks_at=FAR)
    puller, servers, clock = made(first, second)
    servers.meanwhile = second.wake
    puller.round()
    servers.meanwhile = None
    puller.wait()
    assert clock.waits == [], "it waits, though a job was woken"
    puller.round()
    assert servers.packets == [["first-0"], ["second-0"]]


def test_a_wake_while_a_packet_is_left_under_way_is_not_lost() -> None:
    fresh, jobs = Job("fresh"), [Job(f"b{number}", in_backlog=True) for number in range(SLICES + 1)]
    jobs[-1].presses = True  # so that all of them are asked at once
    puller, servers, clock = made(fresh, *jobs)
    for job in (fresh, *jobs):
        job.pause = FAR  # of each backlog this was the last slice
    puller.round()
    assert servers.under_way == 1
    fresh.wake()
    puller.wait()
    puller.round()
    puller.wait()
    assert (servers.under_way, clock.waits) == (0, [])


def test_a_stop_ends_what_is_under_way_and_asks_once_more() -> None:
    jobs = [Job(f"b{number}", in_backlog=True) for number in range(3 * SLICES)]
    confirmed = Job("confirmed", looks_at=FAR)
    puller, servers, _ = made(confirmed, *jobs)
    puller.round()
    confirmed.wake()
    puller.stop()
    for _ in range(3):
        puller.round()
    assert servers.under_way == 0
    assert confirmed.told == [["confirmed-0"]]


def test_it_waits_for_the_earliest_and_no_longer() -> None:
    puller, servers, clock = made(Job("a", looks_at=40.0), Job("b", looks_at=30.0))
    puller.round()
    puller.wait()
    assert clock.waits == [30.0]
    clock.advance(30)
    puller.round()
    assert servers.packets == [["b-0"]]


def test_what_may_wait_goes_along_and_sets_no_packet_off() -> None:
    patient, backlog = Job("patient", looks_at=60.0), Job("backlog", in_backlog=True, looks_at=40.0)
    patient.along_from = 10.0
    puller, servers, clock = made(patient, Job("a", looks_at=30.0), backlog)
    clock.advance(20)
    puller.round()
    assert servers.packets == []
    clock.advance(10)
    puller.round()
    assert servers.packets == [["a-0", "patient-0"]]
    says_nothing = Job("says nothing", commands=0)
    puller.add(cast(PullJob, says_nothing))
    puller.round()
    assert (says_nothing.asked, servers.packets[1:]) == ([True], [])
    says_nothing.looks_at = FAR
    clock.advance(10)
    puller.round()
    assert servers.packets[1:] == [["patient-0", "backlog-0"]]


@pytest.mark.parametrize("resets", [True, False])
def test_one_that_fails_fails_alone_also_if_its_reset_fails(resets: bool) -> None:
    asks, takes, good = Job("asks", 2), Job("takes", 2), Job("good", 2)
    asks.breaks, takes.breaks = "ask", "take"
    asks.resets = takes.resets = resets
    puller, servers, _ = made(asks, takes, good)
    puller.round()
    assert servers.packets == [["takes-0", "takes-1", "good-0", "good-1"]]
    assert good.told == [["good-0", "good-1"]]
    assert [job.failures for job in (asks, takes, good)] == [1, 1, 0]


def test_one_that_cannot_be_handed_over_stays_until_it_can() -> None:
    failures: list[int] = [1, 1]
    handed_over: list[object] = []

    def hand_over(job: PullJob) -> None:
        if failures:
            raise RuntimeError(f"can't start new thread: {failures.pop()}")
        handed_over.append(job)

    goes, stays = Job("goes"), Job("stays")
    puller, servers, clock = made(goes, stays, hand_over=hand_over)
    servers.places["goes"] = ("there", 1)
    for _ in range(4):
        puller.round()
        clock.advance(int(FAR))
    assert handed_over == [goes]
    assert (len(goes.told), len(stays.told)) == (3, 4)


def test_a_packet_that_fails_fails_for_all_that_were_in_it() -> None:
    jobs = [Job("a"), Job("b"), Job("later", looks_at=FAR)]
    puller, servers, clock = made(*jobs)

    def broken() -> None:
        raise RuntimeError("broken on purpose")

    servers.meanwhile = broken
    puller.round()
    assert [job.failures for job in jobs] == [1, 1, 0]
    servers.meanwhile = None
    clock.advance(2 * int(FAR))
    puller.round()
    assert Counter(word for job in jobs for words in job.told for word in words) == Counter(["a-0", "b-0", "later-0"])


def test_one_that_has_come_to_its_end_is_let_go() -> None:
    jobs = [Job("a"), Job("b")]
    puller, servers, clock = made(*jobs)
    jobs[0].finished = True
    puller.round()
    clock.advance(int(FAR))
    puller.round()
    assert [job.ended for job in jobs] == [True, False]
    assert servers.packets == [["a-0", "b-0"], ["b-0"]]


# -- with threads ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pullers(servers: Servers, clock: ManualClock) -> Iterator[Pullers]:
    made = Pullers(cast(Store, servers), clock)
    yield made
    made.stop()
    made.join(JOIN)


def in_time(clock: ManualClock, look: Callable[[], object], what: str) -> None:
    """Move the clock until this is so."""

    def step() -> object:
        clock.advance(1)
        return look()

    eventually(step, what)


def test_a_stop_while_a_packet_hangs_waits_no_longer_than_it_may(servers: Servers, clock: ManualClock) -> None:
    puller, go_on, begun = Puller("puller", cast(Store, servers), clock), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait()

    servers.meanwhile = hang
    job = Job("a")
    puller.start()
    try:
        puller.add(cast(PullJob, job))
        begun.wait()
        puller.stop()
        assert not puller.join(10)
        assert puller.alive
        clock.advance(HUNG + 1)
        assert puller.hung
    finally:
        go_on.set()
    assert puller.join(JOIN)
    assert job.told[0] == ["a-0"]


def test_it_goes_on_after_an_error_that_nobody_expected(
    servers: Servers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    puller, real, left = Puller("puller", cast(Store, servers), clock), Puller.round, [1]

    def once(self: Puller) -> None:
        if left:
            left.pop()
            raise RuntimeError("broken on purpose")
        real(self)

    monkeypatch.setattr(Puller, "round", once)
    job = Job("a")
    puller.add(cast(PullJob, job))
    puller.start()
    clock.wait_for_waiters(timeout=PATIENCE)
    clock.advance(1_000)
    eventually(lambda: job.told, "it goes on")
    puller.stop()
    assert puller.join(JOIN)
    assert "puller_failed" in caplog.text


def test_a_queue_goes_over_to_the_thread_of_the_server_where_it_lies(
    servers: Servers, clock: ManualClock, pullers: Pullers
) -> None:
    servers.places = {"a": HERE, "b": HERE}
    jobs = [Job("a"), Job("b")]
    movers: dict[str, set[int]] = {"a": set(), "b": set()}
    for job in jobs:

        def take(answers: object, job: Job = job) -> None:
            movers[job.name].add(id(threading.current_thread()))
            job.told.append([])
            job.looks_at += 1

        job.take = take  # type: ignore[method-assign]  # to see where it runs
        pullers.add(cast(PullJob, job))
    eventually(lambda: all(job.told for job in jobs), "both are moved")
    assert len(movers["a"] | movers["b"]) == 1
    servers.places["b"] = THERE
    in_time(clock, lambda: len(movers["b"]) == 2, "another thread moves it")
    assert len(movers["a"]) == 1


def test_a_queue_stays_with_its_thread_until_another_one_can_be_started(
    servers: Servers, clock: ManualClock, pullers: Pullers, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.places = {"a": HERE}
    job, left = Job("a"), [1, 1]
    job.pause = 1
    pullers.add(cast(PullJob, job))
    eventually(lambda: job.told, "it is moved")
    (old,) = pullers._pullers.values()
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if left:
            left.pop()
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    servers.places["a"] = THERE
    in_time(clock, lambda: job._wake_puller != old.wake, "another thread moves it")
    assert not left
    told = len(job.told)
    in_time(clock, lambda: len(job.told) > told, "it is asked again")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is the fault
@pytest.mark.parametrize("how", ["died", "hangs"])
def test_in_place_of_a_thread_that_died_or_hangs_there_is_another(
    servers: Servers, clock: ManualClock, pullers: Pullers, how: str
) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def fault() -> None:
        begun.set()
        if how == "died":
            raise SystemExit
        go_on.wait()

    servers.meanwhile = fault
    first = Job("a")
    pullers.add(cast(PullJob, first))
    begun.wait()
    servers.meanwhile = None
    clock.advance(HUNG + 1)
    (old,) = pullers._pullers.values()
    eventually(lambda: old.hung or not old.alive, "it is seen")
    job = Job("b")
    pullers.add(cast(PullJob, job))
    eventually(lambda: job.told, "another thread moves what comes")
    go_on.set()
    if how == "hangs":  # it goes on, and its job has yet to tell what was confirmed
        first.wake()
        eventually(lambda: len(first.told) >= 2, "it is asked again")
        first.finished = True
        first.wake()
    assert old.join(JOIN)
