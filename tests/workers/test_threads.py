"""Threads survive what goes wrong in them, and begin and end in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import pytest

from delayq.clock import SystemClock
from delayq.codec import encode
from delayq.message import Limits, Message
from delayq.routes import Route
from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from delayq.testing import START, ManualClock, MemoryTarget
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.one_queue import OneQueue
from workers.node.wakes import WakeListener
from workers.queue import in_flight
from workers.queue.in_flight import InFlight
from workers.queue.pull import Pulling
from workers.queue.puller import Puller
from workers.queue.settlement import Settlement
from workers.sending.forwarder import GRACE, MOST_ABANDONED, Forwarder
from workers.sending.message import InFlightMessage

ROUTE = Route(name="memory", target="memory:")
TIMEOUT = 1_000
NAMES = {"puller-0", "wakes", "forwarder-memory"}
Reports = list[tuple[list[str], list[str]]]


def held(id: str) -> InFlightMessage:
    record = b"0000000" + b"1800000000000" + b"0" + encode(Message(topic="g.t", delay_time=1), Limits())
    return InFlightMessage(id.encode() + b"\x000000000", START, 0, record)


class Desk:
    """A forwarder into memory, and what it reported."""

    def __init__(self, *, threads: int = 2, max_batch: int = 1, target: MemoryTarget | None = None) -> None:
        self.clock = ManualClock()
        self.target = target if target is not None else MemoryTarget(max_batch=max_batch)
        self.forwarder = Forwarder(ROUTE, self.target, self.clock, threads=threads, timeout=TIMEOUT)
        self._condition = threading.Condition()
        self._reports: dict[str, list[str]] = {}

    def submit(self, *ids: str) -> None:
        self.forwarder.submit(self._report, [held(id) for id in ids])

    def _report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        assert results is not None
        with self._condition:
            for one, result in zip(batch, results, strict=True):
                self._reports.setdefault(one.id, []).append(result.outcome)
            self._condition.notify_all()

    def wait_for_reports(self, count: int) -> dict[str, list[str]]:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self._reports) >= count, 10), self._reports
            return dict(self._reports)

    def hang(self, ids: Sequence[str]) -> None:
        """These are being sent, and hang, and are given up."""
        before = self.target.hanging
        for id in ids:
            self.target.answer("hang", id=id)
            self.submit(id)
        self.target.wait_for_hanging(before + len(ids))
        self.clock.advance(TIMEOUT + GRACE + 1)
        self.forwarder.give_up_hung()

    def threads(self) -> int:
        return sum(thread.name == "forwarder-memory" and thread.is_alive() for thread in threading.enumerate())

    def close(self) -> None:
        self.forwarder.stop()
        self.target.close()
        self.forwarder.join(5_000)
        eventually(lambda: self.threads() == 0, "the forwarder's threads end")


@pytest.fixture
def desks() -> Any:
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(**options))
        made[-1].forwarder.start()
        return made[-1]

    yield make
    for desk in made:
        desk.close()


Desks = Callable[..., Desk]


def test_a_send_that_hangs_is_given_up_as_unknown_and_its_late_answer_is_ignored(desks: Desks) -> None:
    desk = desks()
    desk.hang(["h"])
    assert desk.wait_for_reports(1) == {"h": ["unknown"]}
    assert sum(desk.forwarder.given_up.values()) == 1
    desk.target.release()
    desk.target.wait_for_ids(["h"])
    eventually(lambda: not desk.forwarder.given_up, "nothing of it may arrive any more")
    desk.submit("next")
    assert desk.wait_for_reports(2) == {"h": ["unknown"], "next": ["ok"]}


def test_a_send_in_time_is_not_given_up(desks: Desks) -> None:
    desk = desks()
    desk.target.answer("hang", id="h")
    desk.submit("h")
    desk.target.wait_for_hanging()
    desk.clock.advance(TIMEOUT + GRACE)
    desk.forwarder.give_up_hung()
    desk.target.release()
    assert desk.wait_for_reports(1) == {"h": ["ok"]}


def test_threads_that_hang_are_replaced_so_that_others_are_sent(desks: Desks) -> None:
    desk = desks(threads=2)
    for round in range(3):
        desk.hang([f"h{round}a", f"h{round}b"])  # all threads
        desk.submit(f"m{round}")
        desk.target.wait_for_ids([f"m{round}"])
    assert desk.threads() == 8
    desk.target.release()
    eventually(lambda: desk.threads() == 2, "the replaced threads end")


def test_no_more_threads_are_replaced_than_a_bound_and_all_is_well_when_they_come_back(desks: Desks) -> None:
    desk = desks(threads=4)
    for round in range(5):
        desk.hang([f"h{round}-{i}" for i in range(4)])
    assert desk.target.hanging == 20 == MOST_ABANDONED + 4
    assert desk.threads() == 20
    desk.submit("waits")
    desk.forwarder.give_up_hung()
    assert desk.threads() == 20
    desk.target.behave()
    assert desk.wait_for_reports(21)["waits"] == ["ok"]
    eventually(lambda: desk.threads() == 4, "as many threads as at the beginning are left")


def test_a_forwarder_sends_groups_that_wait_together_up_to_the_targets_batch(desks: Desks) -> None:
    desk = desks(threads=1, max_batch=10)
    desk.target.answer("hang", id="first")
    desk.submit("first")
    desk.target.wait_for_hanging()
    for i in range(8):
        desk.submit(f"a{i}", f"b{i}", f"c{i}")
    desk.target.behave()
    desk.wait_for_reports(25)
    assert desk.target.batches == [1, 9, 9, 6]


def test_a_stopping_forwarder_sends_what_it_has_accepted(desks: Desks) -> None:
    desk = desks(threads=1)
    desk.target.answer("hang", id="m0")
    desk.submit("m0")
    desk.target.wait_for_hanging()
    for i in range(1, 6):
        desk.submit(f"m{i}")
    desk.forwarder.stop()
    desk.forwarder.stop()
    desk.target.behave()
    desk.forwarder.join(5_000)
    assert desk.target.ids == [f"m{i}" for i in range(6)]


# -- the pull job --------------------------------------------------------------------------------------------------


def nothing_lost_after(world: OneQueue, monkeypatch: pytest.MonkeyPatch, broken: Any, name: str) -> None:
    """Let `name` raise once in the middle of everything, in the loop of its puller; all arrive in the end."""
    hand = world.take_over()
    job, real, left = hand.job, getattr(broken, name), [1]

    def once(*args: Any, **options: Any) -> Any:
        if left and armed:
            left.pop()
            raise RuntimeError("broken on purpose")
        return real(*args, **options)

    armed: list[int] = []
    monkeypatch.setattr(broken, name, once)
    for i in range(40):
        world.add(f"m{i:02}", at=i, ordering_key=f"k{i % 5}" if i % 2 else "")
    answered: list[str] = []

    real_submit = type(hand.forwarders["general"]).submit
    forwarder = hand.forwarders["general"]

    def submit(report: Any, batch: Sequence[InFlightMessage], pauses: int) -> None:
        real_submit(forwarder, report, batch)
        while forwarder.outbox:
            answered.append(forwarder.ids[0])
            forwarder.answer(0, OK)

    monkeypatch.setattr(forwarder, "submit", submit)
    puller = Puller("puller", world.store, forwarder._clock)
    puller.add(job)
    while world.records() and world.elapsed < 60_000:
        if len(answered) >= 10:
            armed.append(1)
        puller.round()
        armed.clear()
        world.advance(max(0, ceil(job.looks_at - world.elapsed)))
    assert not left
    assert set(answered) == {f"m{i:02}" for i in range(40)}
    assert world.records() == {}


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (Store, "begin"), (Store, "end"),
        (InFlight, "accept"), (InFlight, "send_waiting"), (InFlight, "answered"), (in_flight, "judge"),
        (in_flight, "sort"), (Settlement, "steps"), (Settlement, "answered"), (Pulling, "pulls"), (Pulling, "looks_at"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)  # fmt: skip
def test_an_exception_in_a_tick_loses_nothing(
    world: OneQueue, monkeypatch: pytest.MonkeyPatch, broken: Any, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing_lost_after(world, monkeypatch, broken, name)
    assert "tick_failed" in "".join(capsys.readouterr())


def test_a_job_whose_reset_fails_too_backs_off_and_counts_as_stuck_in_the_end(
    world: OneQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = world.take_over()
    hand.tick()
    ticked_at = hand.job.ticked_at
    world.advance(1_000)

    def broken() -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(hand.job.in_flight, "reset", broken)
    with pytest.raises(RuntimeError):
        hand.job.failed()
    assert not hand.job.wants_to_look(world.elapsed)
    assert hand.job.ticked_at == ticked_at


def test_puller_forwarder_and_listener_start_and_stop_from_several_threads_at_once(valkey: ServerUnderTest) -> None:
    store = Store(valkey.url)
    try:
        for _ in range(5):
            puller = Puller("puller-0", store, SystemClock())
            listener = WakeListener(store, [0], lambda queue, due: None)
            forwarder = Forwarder(ROUTE, MemoryTarget(), SystemClock(), threads=3, timeout=TIMEOUT)
            barrier = threading.Barrier(8)
            failed: list[BaseException] = []

            def start_and_stop(
                puller: Puller = puller,
                listener: WakeListener = listener,
                forwarder: Forwarder = forwarder,
                barrier: threading.Barrier = barrier,
                failed: list[BaseException] = failed,
            ) -> None:
                try:
                    barrier.wait(10)
                    for one in (puller, listener, forwarder):
                        one.start()
                    barrier.wait(10)
                    for one in (forwarder, listener, puller):
                        one.stop()
                        one.stop()
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=start_and_stop) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert failed == []
            assert puller.join(10_000)
            forwarder.join(10_000)
            listener.join(10_000)
            eventually(lambda: not {one.name for one in threading.enumerate()} & NAMES, "no thread is left")
    finally:
        store.close()


def test_a_listener_goes_on_after_an_exception_of_the_one_it_tells(valkey: ServerUnderTest) -> None:
    store = Store(valkey.url)
    heard: list[int | None] = []
    condition = threading.Condition()

    def wake(queue: int, due: int | None) -> None:
        with condition:
            heard.append(due)
            condition.notify_all()
        if due == 1:
            raise RuntimeError("broken on purpose")

    listener = WakeListener(store, [0], wake)
    listener.start()
    try:
        with condition:
            assert condition.wait_for(lambda: heard == [None], 10)
            valkey.admin.publish("delayq:{0}:wake", "1")
            assert condition.wait_for(lambda: heard == [None, 1, None], 10)  # connected anew: look
            valkey.admin.publish("delayq:{0}:wake", "2")
            assert condition.wait_for(lambda: heard[-1] == 2, 10)
    finally:
        listener.stop()
        listener.join(5_000)
        store.close()
