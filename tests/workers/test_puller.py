"""The thread that pulls, with a clock of the test's own; and the same with one of its rules taken out, which shows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from tests.support.waiting import eventually
from tests.workers.pulling import CHECKS, Job, Servers
from workers.queue import puller as shipped
from workers.queue.pull_job import PullJob
from workers.queue.puller import HUNG, Puller, Pullers

Check = Callable[[type[Puller]], None]
HERE, THERE = ("one", 1), ("two", 2)

#: A rule's name, where it stands, and what stands there instead.
MUTANTS = (
    ("a job is handed another's answers", "            start += count\n", ""),
    ("a job is handed the answers of all", "answers[start : start + count]", "answers[start:]"),
    ("a backlog takes all slots", "elif len(taking) < SLICES:", "elif True:"),
    ("backlogs do not take turns", "self._jobs.sort(key=taking.__contains__)", "pass"),
    ("a backlog comes before what is fresh", "for job, backlog in picked:",
     "for job, backlog in [(job, True) for job in taking] + list(picked):"),
    ("what may wait goes alone", "if job.goes_along(now):", "if False:"),
    ("what may wait sets a packet off", "if packet or taking:", "if True:"),
    ("what presses waits for its turn", "if job.presses:", "if False:"),
    ("a wake is lost between picking and waiting", "if any(job.wants_to_look(now) for job in self._jobs):", "if False:"),
    ("a stop leaves a packet under way", "return not self._stopping and len(", "return len("),
    ("a stop tells nothing more", "if not self._asked_last:", "if not self._stopping:"),
    ("it waits for the latest", "looks_at = min(", "looks_at = max("),
    ("one that fails to ask takes the others along", "except Exception:\n            _fail([job])\n        else:",
     "except ValueError:\n            _fail([job])\n        else:"),
    ("one that fails to take takes the others along",
     "except Exception:\n                _fail([job])\n            start",
     "except ValueError:\n                _fail([job])\n            start"),
    ("one whose reset fails takes the others along", "except Exception:\n            log.exception(\"reset_failed\"",
     "except ValueError:\n            log.exception(\"reset_failed\""),
    ("a packet that fails is forgotten",
     "            _fail(job for job, _ in asked)\n            return\n        st",
     "            return\n        st"),
    ("one that cannot be handed over is lost", "                else:\n                    self._remove(job)",
     "                self._remove(job)"),
    ("one that was handed over stays", "                else:\n                    self._remove(job)", ""),
    ("one that has ended is asked for ever", "            if job.finished:", "            if False:"),
    ("a job is asked again before it was told", "if job not in self._busy", "if True"),
    ("packets without bound", "len(self._under_way) < PACKETS", "True"),
    ("no packet beside another", "not (more and self._leaves_answers)", "True"),
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.replace("_", "-"))
def test_of_the_thread_that_pulls(check: Check) -> None:
    check(Puller)


@pytest.mark.parametrize(("name", "there", "instead"), MUTANTS, ids=[name.replace(" ", "-") for name, *_ in MUTANTS])
def test_a_check_fails_without_a_rule(name: str, there: str, instead: str) -> None:
    source = Path(shipped.__file__).read_text(encoding="utf-8")
    assert source.count(there) == 1, f"{name}: puller.py has changed: {there!r}"
    module = ModuleType("workers.queue.mutant")
    exec(compile(source.replace(there, instead), "mutant.py", "exec"), module.__dict__)

    def dies(check: Check) -> bool:
        try:
            check(module.Puller)
        except (AssertionError, RuntimeError):
            return True
        return False

    assert any(dies(check) for check in CHECKS)


# -- with threads ------------------------------------------------------------------------------------------------------


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def given(job: Job) -> PullJob:
    return cast(PullJob, job)


def test_a_stop_while_a_packet_hangs_waits_no_longer_than_it_may(servers: Servers, clock: ManualClock) -> None:
    puller, go_on, begun = Puller("puller", cast(Store, servers), clock), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(60)

    servers.meanwhile = hang
    job = Job("a")
    puller.start()
    try:
        puller.add(given(job))
        assert begun.wait(10)
        puller.stop()
        assert not puller.join(10)
        assert puller.alive
        clock.advance(HUNG + 1)
        assert puller.hung
    finally:
        go_on.set()
    assert puller.join(10_000)
    assert job.told[0] == ["a-0"]


def test_it_goes_on_after_an_error_that_nobody_expected(
    servers: Servers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    puller, real, left = Puller("puller", cast(Store, servers), clock), Puller.round, [1]

    def once(self: Puller) -> None:
        if left:
            left.pop()
            raise RuntimeError("broken on purpose")
        real(self)

    monkeypatch.setattr(Puller, "round", once)
    job = Job("a")
    puller.add(given(job))
    puller.start()
    clock.wait_for_waiters(1)
    clock.advance(1_000)
    eventually(lambda: job.told, "it goes on")
    puller.stop()
    assert puller.join(10_000)
    assert "puller_failed" in "".join(capsys.readouterr())


def test_a_queue_goes_over_to_the_thread_of_the_server_where_it_lies(servers: Servers, clock: ManualClock) -> None:
    servers.places = {"a": HERE, "b": HERE}
    pullers = Pullers(cast(Store, servers), clock)
    jobs = [Job("a"), Job("b")]
    movers: dict[str, set[int]] = {"a": set(), "b": set()}
    for job in jobs:

        def take(answers: object, job: Job = job) -> None:
            movers[job.name].add(id(threading.current_thread()))
            job.told.append([])
            job.looks_at += 1

        job.take = take  # type: ignore[method-assign]  # to see where it runs
        pullers.add(given(job))
    eventually(lambda: all(job.told for job in jobs), "both are moved")
    assert len(movers["a"] | movers["b"]) == 1
    servers.places["b"] = THERE

    def moved() -> bool:
        clock.advance(1)
        return len(movers["b"]) == 2

    eventually(moved, "another thread moves it")
    assert len(movers["a"]) == 1
    pullers.stop()
    pullers.join(10_000)


def test_a_queue_stays_with_its_thread_until_another_one_can_be_started(
    servers: Servers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers.places = {"a": HERE}
    pullers, job, left = Pullers(cast(Store, servers), clock), Job("a"), [1, 1]
    job.pause = 1
    pullers.add(given(job))
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

    def moved() -> bool:
        clock.advance(1)
        return job._mover is not old

    eventually(moved, "another thread moves it")
    assert not left
    told = len(job.told)

    def goes_on() -> bool:
        clock.advance(1)
        return len(job.told) > told

    eventually(goes_on, "it is asked again")
    pullers.stop()
    pullers.join(10_000)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is the fault
@pytest.mark.parametrize("how", ["died", "hangs"])
def test_in_place_of_a_thread_that_died_or_hangs_there_is_another(
    servers: Servers, clock: ManualClock, how: str
) -> None:
    pullers, go_on, begun = Pullers(cast(Store, servers), clock), threading.Event(), threading.Event()

    def fault() -> None:
        begun.set()
        if how == "died":
            raise SystemExit
        go_on.wait(60)

    servers.meanwhile = fault
    first = Job("a")
    pullers.add(given(first))
    assert begun.wait(10)
    servers.meanwhile = None
    clock.advance(HUNG + 1)
    (old,) = pullers._pullers.values()
    eventually(lambda: old.hung or not old.alive, "it is seen")
    job = Job("b")
    pullers.add(given(job))
    eventually(lambda: job.told, "another thread moves what comes")
    go_on.set()
    if how == "hangs":  # it goes on, and its job has yet to tell what was confirmed
        first.wake()
        eventually(lambda: len(first.told) >= 2, "it is asked again")
        first.finished = True
        first.wake()
    assert old.join(10_000)
    pullers.stop()
    pullers.join(10_000)
