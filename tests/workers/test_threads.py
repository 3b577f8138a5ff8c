"""Threads survive what goes wrong in them, and begin and end in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import ceil
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq.base.clock import SystemClock
from delayq.store.connect.store import Store
from delayq.targets import OK
from delayq.testing import MemoryTarget
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.conftest import Desks
from tests.workers.desk import ROUTE
from tests.workers.one_queue import OneQueue
from workers.node.wakes import WakeListener
from workers.queue import in_flight
from workers.queue.in_flight import InFlight
from workers.queue.pull import Pulling
from workers.queue.puller import Puller
from workers.queue.settlement import Settlement
from workers.sending.message import InFlightMessage
from workers.sending.sender import GRACE, MOST_ABANDONED, Sender

TIMEOUT = 1_000
JOIN = 60_000  # ms; pytest ends a test before
NAMES = {"puller-0", "wakes", "sender-memory"}


def test_a_send_that_hangs_is_given_up_as_unknown_and_its_late_answer_is_ignored(desks: Desks) -> None:
    """D6: The worker logs `send_hung`.

    After three such sends the circuit opens and the target's messages are parked. Other topics continue; when the
    target answers again, all messages are delivered.
    """
    desk = desks(timeout=TIMEOUT)
    desk.hang("h")
    desk.clock.advance(TIMEOUT + GRACE)
    desk.sender.give_up_hung()
    assert desk.reports == {}, "it is in time still"
    desk.clock.advance(1)
    desk.sender.give_up_hung()
    assert desk.wait_for_reports(1) == {"h": ["unknown"]}
    assert sum(desk.sender.given_up.values()) == 1
    desk.target.release()
    desk.target.wait_for_ids(["h"], PATIENCE)
    eventually(lambda: not desk.sender.given_up, "nothing of it may arrive any more")
    desk.submit("next")
    assert desk.wait_for_reports(2) == {"h": ["unknown"], "next": ["ok"]}


def test_no_more_threads_are_replaced_than_a_bound_and_all_is_well_when_they_come_back(desks: Desks) -> None:
    desk = desks(threads=4)
    for round in range(5):
        if round < 4:
            desk.submit(f"m{round}")
            desk.target.wait_for_ids([f"m{round}"], PATIENCE)
        desk.hang(*(f"h{round}-{i}" for i in range(4)))  # all threads
        desk.give_up_hung()
    assert desk.target.hanging == 20 == MOST_ABANDONED + 4
    assert desk.threads() == 20
    desk.submit("waits")
    desk.sender.give_up_hung()
    assert desk.threads() == 20
    desk.target.behave()
    assert desk.wait_for_reports(25)["waits"] == ["ok"]
    eventually(lambda: desk.threads() == 4, "as many threads as at the beginning are left")


def test_a_sender_sends_groups_that_wait_together_up_to_the_targets_batch(desks: Desks) -> None:
    desk = desks(max_batch=10)
    desk.hang("first")
    for i in range(8):
        desk.submit(f"a{i}", f"b{i}", f"c{i}")
    desk.target.behave()
    desk.wait_for_reports(25)
    assert desk.target.batches == [1, 9, 9, 6]


def test_a_batch_for_a_target_that_takes_one_at_a_time_is_sent_by_all_threads(desks: Desks) -> None:
    desk = desks(threads=3)
    desk.target.answer("hang")
    desk.submit(*(f"m{number}" for number in range(6)))
    desk.target.wait_for_hanging(3, PATIENCE)
    desk.target.behave()
    assert sorted(desk.wait_for_reports(6)) == [f"m{number}" for number in range(6)]


def test_a_stopping_sender_sends_what_it_has_accepted(desks: Desks) -> None:
    desk = desks()
    desk.hang("m0")
    for i in range(1, 6):
        desk.submit(f"m{i}")
    desk.sender.stop()
    desk.sender.stop()
    desk.target.behave()
    desk.sender.join(JOIN)
    assert desk.target.ids == [f"m{i}" for i in range(6)]


# -- the pull job --------------------------------------------------------------------------------------------------


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
    world: OneQueue, monkeypatch: pytest.MonkeyPatch, broken: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D5 (exception inside the pull thread): The pull job drops its messages, logs `tick_failed` and pulls again;
    other queues continue.

    D5: The failure is counted. If the thread has ended, its queues are claimed under new epochs (`pull_job_died`),
    and messages being sent repeat.

    `name` raises once in the middle of everything, in the loop of its puller; all arrive in the end.
    """
    hand = world.take_over()
    sender, answered = hand.senders["general"], list[str]()
    real, real_submit, left, armed = getattr(broken, name), sender.submit, [1], list[int]()

    def once(*args: Any, **options: Any) -> Any:
        if left and armed:
            left.pop()
            raise RuntimeError("broken on purpose")
        return real(*args, **options)

    def submit(report: Any, batch: Sequence[InFlightMessage], stalls: int, *limits: Any) -> None:
        real_submit(report, batch, stalls, *limits)
        while sender.outbox:
            answered.append(sender.ids[0])
            sender.answer(0, OK)

    monkeypatch.setattr(broken, name, once)
    monkeypatch.setattr(sender, "submit", submit)
    for i in range(40):
        world.add(f"m{i:02}", at=i, ordering_key=f"k{i % 5}" if i % 2 else "")
    puller = Puller("puller", world.store, sender._clock)
    puller.add(hand.job)
    while world.records() and world.elapsed < 60_000:
        if len(answered) >= 10:
            armed.append(1)
        puller.round()
        armed.clear()
        world.advance(max(0, ceil(hand.job.looks_at - world.elapsed)))
    assert not left
    assert set(answered) == {f"m{i:02}" for i in range(40)}
    assert world.records() == {}
    assert "tick_failed" in caplog.text


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


def start_and_stop(barrier: threading.Barrier, failed: list[BaseException], *those: Any) -> None:
    """Start these and stop each twice, at once with other threads that do so."""
    try:
        barrier.wait()
        for one in those:
            one.start()
        barrier.wait()
        for one in reversed(those):
            one.stop()
            one.stop()
    except BaseException as error:
        failed.append(error)


def test_puller_sender_and_listener_start_and_stop_from_several_threads_at_once(store: Store) -> None:
    for _ in range(3):
        puller = Puller("puller-0", store, SystemClock())
        listener = WakeListener(store, [0], lambda queue, due: None)
        sender = Sender(ROUTE, MemoryTarget(), SystemClock(), threads=3, timeout=TIMEOUT)
        failed: list[BaseException] = []
        given = (threading.Barrier(8), failed, puller, listener, sender)
        threads = [threading.Thread(target=start_and_stop, args=given) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert puller.join(JOIN)
        sender.join(JOIN)
        listener.join(JOIN)
        eventually(lambda: not {one.name for one in threading.enumerate()} & NAMES, "no thread is left")


def test_a_listener_goes_on_after_an_exception_of_the_one_it_tells(store: Store, valkey: ServerUnderTest) -> None:
    heard: list[int | None] = []

    def wake(queue: int, due: int | None) -> None:
        heard.append(due)
        if due == 1:
            raise RuntimeError("broken on purpose")

    listener = WakeListener(store, [0], wake)
    listener.start()
    try:
        eventually(lambda: heard == [None], "it listens")
        valkey.publish("delayq:{0}:wake", "1")
        eventually(lambda: heard == [None, 1, None], "it has connected anew, and has the queue looked at")
        valkey.publish("delayq:{0}:wake", "2")
        eventually(lambda: heard[-1] == 2, "it is woken")
    finally:
        listener.stop()
        listener.join(JOIN)


def test_a_listener_that_may_not_listen_says_so_once_and_hears_as_soon_as_it_may(valkey: ServerUnderTest) -> None:
    rights = ("ACL", "SETUSER", "deaf", "reset", "on", ">deaf", "+@all", "allkeys")
    valkey.admin.execute_command(*rights)
    heard: list[int | None] = []
    store = Store(valkey.url.replace("redis://", "redis://deaf:deaf@"), timeout=PATIENCE)
    listener = WakeListener(store, [0], lambda queue, due: heard.append(due))
    with capture_logs() as logs:
        listener.start()
        try:
            eventually(lambda: len(heard) > 2, "it tries again, and has the queue looked at meanwhile")
            assert [one["event"] for one in logs] == ["wakes_lost"]
            assert "refused" in logs[0]["error"]
            valkey.admin.execute_command(*rights, "allchannels")
            eventually(lambda: valkey.admin.pubsub_numsub("delayq:{0}:wake")[0][1] == 1, "it listens")
            valkey.publish("delayq:{0}:wake", "2")
            eventually(lambda: heard[-1] == 2, "it is woken")
        finally:
            listener.stop()
            listener.join(JOIN)
            store.close()
            valkey.admin.execute_command("ACL", "DELUSER", "deaf")
