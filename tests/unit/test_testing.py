"""The helpers that delayq gives to the tests of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from delayq.base.clock import AdvancedClock, Clock
from delayq.base.errors import ConfigError
from delayq.domain.codec import encode
from delayq.domain.message import Limits, Message
from delayq.domain.routes import Route
from delayq.targets import open_target
from delayq.testing import START, ManualClock, MemoryTarget, register_memory_target
from tests.support.timeouts import PATIENCE
from workers.sending.message import InFlightMessage

REDIS = "redis://127.0.0.1:6379/0"


def delivery(id: str, topic: str = "t") -> InFlightMessage:
    """A pulled message."""
    content = encode(Message(topic=topic, delay_time=0, body="x", keys=("k",), properties={"n": "v"}), Limits())
    return InFlightMessage(id.encode() + b"\x000000001", 5, 1, b"0000001%013d0" % 5 + content)


@pytest.fixture
def threads() -> Iterator[list[threading.Thread]]:
    started: list[threading.Thread] = []
    yield started
    for thread in started:
        thread.join()


def start(threads: list[threading.Thread], work: Any) -> None:
    threads.append(threading.Thread(target=work))
    threads[-1].start()


# -- ManualClock ---------------------------------------------------------------------------------------------------------


def test_time_stands_still_until_it_is_moved_and_only_the_wall_clock_may_step() -> None:
    clock: Clock = ManualClock()
    assert (clock.now(), clock.monotonic()) == (START, 0)
    assert isinstance(clock, ManualClock)
    clock.advance(250)
    assert (clock.now(), clock.monotonic()) == (START + 250, 250)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    clock.set_now(5)
    assert (clock.now(), clock.monotonic()) == (5, 250)


def test_a_wait_ends_when_the_clock_has_moved_far_enough(threads: list[threading.Thread]) -> None:
    clock, condition = ManualClock(), threading.Condition()
    ended: list[int] = []

    def wait() -> None:
        with condition:
            deadline = clock.monotonic() + 100
            while clock.wait(condition, deadline - clock.monotonic()):
                pass
            ended.append(clock.monotonic())

    start(threads, wait)
    for _ in range(4):
        clock.wait_for_waiters(1, PATIENCE)
        assert ended == []
        clock.advance(25)
    threads[0].join()
    assert ended == [100]


def test_a_wait_ends_when_its_condition_is_notified_or_there_is_no_time(threads: list[threading.Thread]) -> None:
    clock, condition = ManualClock(), threading.Condition()
    answers: list[bool] = []

    def wait() -> None:
        with condition:
            answers.extend(clock.wait(condition, ms) for ms in (0, -5, 60_000))

    start(threads, wait)
    clock.wait_for_waiters(1, PATIENCE)
    with condition:
        condition.notify()
    threads[0].join()
    assert (answers, clock.monotonic()) == ([False, False, True], 0)
    with pytest.raises(TimeoutError, match="0 of 1 threads"):
        clock.wait_for_waiters(timeout=0.01)


# -- AdvancedClock -------------------------------------------------------------------------------------------------------


def test_an_advanced_clock_jumps_wakes_who_waits_and_does_not_go_back(threads: list[threading.Thread]) -> None:
    clock, condition, waits = AdvancedClock(), threading.Condition(), threading.Event()
    before = clock.now(), clock.monotonic(), clock.precise()
    ended: list[float] = []

    def wait() -> None:
        with condition:
            deadline = clock.precise() + 3_600_000
            while (left := deadline - clock.precise()) > 0:
                waits.set()
                clock.wait(condition, left)
            ended.append(clock.precise() - deadline)

    start(threads, wait)
    waits.wait()
    clock.advance_to(1_800_000)
    clock.advance_to(60_000)
    assert clock.advanced == 1_800_000
    clock.advance_to(3_600_000)
    threads[0].join()
    assert ended[0] >= 0
    after = clock.now(), clock.monotonic(), clock.precise()
    assert all(late - early >= 3_600_000 for early, late in zip(before, after, strict=True))


def test_a_time_out_that_was_reckoned_before_the_clock_jumped_is_not_waited_for() -> None:
    clock, condition = AdvancedClock(), threading.Condition()
    left = clock.precise() + 3_600_000 - clock.precise()
    mover = threading.Thread(target=clock.advance_to, args=(3_600_000,))
    mover.start()
    mover.join()
    with condition:
        assert clock.wait(condition, left)
        assert not clock.wait(condition, 0)


# -- MemoryTarget --------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_kept_in_order() -> None:
    target = MemoryTarget(clock=ManualClock())
    results = target.send([delivery("a"), delivery("b")], 1.0)
    assert [result.outcome for result in results] == ["ok", "ok"]
    first = target.deliveries[0]
    assert (first.id, first.topic, first.keys, first.properties) == ("a", "t", ("k",), {"n": "v"})
    assert (first.payload, first.due, first.attempt, first.at) == (b"x", 5, 2, START)
    assert (target.ids, target.batches) == (["a", "b"], [2])
    assert target.wait_for(2) == target.deliveries
    with pytest.raises(TimeoutError, match="2 of 3"):
        target.wait_for(3, timeout=0.01)
    with pytest.raises(TimeoutError, match="c"):
        target.wait_for_ids(["a", "c"], timeout=0.01)


def test_messages_are_answered_as_told_by_id_topic_and_number_of_times() -> None:
    target = MemoryTarget()
    target.answer("rejected", topic="bad", reason="no such user")
    target.answer("unavailable", id="a", times=2)
    target.answer("unknown", id="b", times=1, arrives=True)
    target.answer("unknown", id="c", times=1)

    def send() -> list[str]:
        batch = [delivery("a"), delivery("b"), delivery("c"), delivery("d", topic="bad"), delivery("e")]
        return [result.outcome for result in target.send(batch, 1.0)]

    assert send() == ["unavailable", "unknown", "unknown", "rejected", "ok"]
    assert target.ids == ["b", "e"]
    assert send() == ["unavailable", "ok", "ok", "rejected", "ok"]
    assert send() == ["ok", "ok", "ok", "rejected", "ok"]
    assert target.send([delivery("d", topic="bad")], 1.0)[0].reason == "no such user"
    assert len(target.attempted) == 16
    target.behave()
    assert send() == ["ok"] * 5
    target.answer("unavailable")
    target.answer("ok", id="a")  # the rule told last counts
    assert send() == ["ok", *["unavailable"] * 4]
    with pytest.raises(ValueError, match="unknown outcome 'maybe'"):
        target.answer("maybe")


def test_a_send_hangs_until_it_is_released_or_the_target_is_closed_and_others_go_on(
    threads: list[threading.Thread],
) -> None:
    target = MemoryTarget()
    target.answer("rejected", id="r")
    for id in ("a", "r", "c"):
        target.answer("hang", id=id, times=1)
    outcomes: dict[str, str] = {}

    def send(id: str) -> None:
        outcomes.update((id, result.outcome) for result in target.send([delivery(id)], 1.0))

    for id in ("a", "r"):
        start(threads, lambda id=id: send(id))
    target.wait_for_hanging(2, PATIENCE)
    send("b")
    assert target.ids == ["b"]
    target.release()
    for thread in threads:
        thread.join()
    assert outcomes == {"a": "ok", "b": "ok", "r": "rejected"}, "a released send goes on by the other rules"
    assert target.hanging == 0
    start(threads, lambda: send("c"))
    target.wait_for_hanging(1, PATIENCE)
    target.close()
    target.wait_for_ids(["a", "c"], PATIENCE)


def test_latency_is_waited_by_the_clock(threads: list[threading.Thread]) -> None:
    clock = ManualClock()
    target = MemoryTarget(latency=50, clock=clock)
    start(threads, lambda: target.send([delivery("a")], 1.0))
    clock.wait_for_waiters(1, PATIENCE)
    assert len(target.wait_for_attempts(1, PATIENCE)) == 1
    assert target.deliveries == []
    clock.advance(50)
    (arrived,) = target.wait_for(1, PATIENCE)
    assert arrived.at == START + 50


def test_a_target_is_opened_by_its_url() -> None:
    one, other = MemoryTarget(), MemoryTarget()
    urls = [register_memory_target(one), register_memory_target(other, "other")]
    assert [open_target(Route(name="r", target=url), REDIS) for url in urls] == [one, other]
    with pytest.raises(ConfigError, match="no test registered a memory target named 'nobody'"):
        open_target(Route(name="r", target="memory://nobody"), REDIS)
