"""A target that asks to be left alone for a while: its message waits as long, and so do the probes of its circuit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from delayq.codec import encode
from delayq.message import Limits, Message
from delayq.targets import LONGEST_AFTER, OK, Delivery, Result
from delayq.testing import ManualClock
from tests.support.waiting import eventually
from tests.workers.one_queue import OTHER, START, OneQueue
from workers.sending.circuit import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, PROBES, Circuit
from workers.sending.forwarder import Forwarder
from workers.sending.message import InFlightMessage

PAUSE = 60_000  # far beyond the back-off of these tests, which is at most a second


@pytest.mark.parametrize("key", ["", "k"], ids=["without-key", "with-key"])
@pytest.mark.parametrize("make", [Result.unavailable, Result.unknown])
def test_a_failed_message_is_not_sent_again_before_the_pause_that_the_target_asked_for(
    world: OneQueue, key: str, make: Callable[..., Result]
) -> None:
    hand = world.take_over()
    world.add("m", ordering_key=key)
    hand.settle()
    hand.answer("m", make("busy", after=PAUSE))
    assert hand.run(PAUSE - 1) == []
    assert hand.run(2_000, lambda held: OK) == ["m"]
    assert world.records() == {}


def test_a_pause_that_is_shorter_than_the_back_off_changes_nothing(world: OneQueue) -> None:
    hand = world.take_over()
    world.add("m")
    hand.settle()
    hand.answer("m", Result.unavailable("busy", after=1))
    hand.settle()
    (due,) = world.tickets().values()
    assert due - START >= 50


def test_nobody_may_ask_for_more_than_the_longest_pause() -> None:
    assert Result.unavailable("", after=10**9).after == LONGEST_AFTER
    assert Result.unknown("", after=10**9).after == LONGEST_AFTER


def test_a_circuit_that_opens_or_stays_open_waits_as_long_as_the_target_asked() -> None:
    clock = ManualClock()
    circuit = Circuit(clock)
    for _ in range(FAILURES):
        circuit.sent(False, PAUSE)
    assert circuit.open
    clock.advance(PAUSE - 1)
    assert circuit.permit() == 0
    clock.advance(1)
    assert circuit.permit() == PROBES
    circuit.sent(False, 2 * PAUSE)
    clock.advance(2 * PAUSE - 1)
    assert circuit.permit() == 0
    clock.advance(1)
    assert circuit.permit() == PROBES


def test_a_send_that_was_on_its_way_when_the_circuit_opened_can_ask_for_a_longer_pause() -> None:
    clock = ManualClock()
    circuit = Circuit(clock)
    for _ in range(FAILURES):
        circuit.sent(False)
    circuit.sent(False, PAUSE)
    clock.advance(FIRST_PAUSE + LONGEST_PAUSE)
    assert circuit.permit() == 0
    clock.advance(PAUSE)
    assert circuit.permit() == PROBES


# -- groups -------------------------------------------------------------------------------------------------------------


class OneByOne:
    """Takes one message at a time, and holds each until the test lets all go."""

    max_batch = 1

    def __init__(self) -> None:
        self.sending: set[str] = set()
        self.go = threading.Event()

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        self.sending.add(batch[0].id)
        self.go.wait(20)
        return [OK] * len(batch)

    def close(self) -> None: ...


def test_a_batch_for_a_target_that_takes_one_at_a_time_is_sent_by_all_threads() -> None:
    target, reported = OneByOne(), list[str]()
    forwarder = Forwarder(OTHER, target, ManualClock(), threads=3, timeout=1_000)
    record = b"0000000" + b"1800000000000" + b"0" + encode(Message(topic="o.t", delay_time=1), Limits())
    batch = [InFlightMessage(f"m{number}".encode() + b"\x000000000", START, 0, record) for number in range(6)]
    forwarder.start()
    try:
        forwarder.submit(lambda some, results: reported.extend(held.id for held in some), batch)
        eventually(lambda: len(target.sending) == 3, "three messages are being sent at once")
        target.go.set()
        eventually(lambda: not forwarder.busy, "all are sent")
    finally:
        target.go.set()
        forwarder.stop()
        forwarder.join(5_000)
    assert sorted(reported) == ["m0", "m1", "m2", "m3", "m4", "m5"]
