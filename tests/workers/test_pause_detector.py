"""A process that stood still sends nothing of what it held before."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from delayq.codec import encode
from delayq.message import Limits, Message
from delayq.routes import Route
from delayq.targets import Result
from delayq.testing import START, ManualClock, MemoryTarget
from tests.support.waiting import eventually
from workers.sending.forwarder import Forwarder
from workers.sending.message import InFlightMessage
from workers.sending.pause_detector import PauseDetector

LONGEST = 1_000


def held(id: str) -> InFlightMessage:
    record = b"0000000" + b"1800000000000" + b"0" + encode(Message(topic="g.t", delay_time=1), Limits())
    return InFlightMessage(id.encode() + b"\x000000000", START, 0, record)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_gap_between_two_looks_that_is_longer_than_the_longest_is_a_pause(clock: ManualClock) -> None:
    pulse = PauseDetector(clock, LONGEST)
    assert pulse.pauses == 0
    clock.advance(LONGEST)
    assert pulse.pauses == 0
    clock.advance(LONGEST + 1)
    assert [pulse.pauses, pulse.pauses] == [1, 1]
    clock.advance(LONGEST + 1)
    assert pulse.pauses == 2


def test_its_thread_looks_often_enough_that_a_quiet_process_has_no_pauses(clock: ManualClock) -> None:
    pulse = PauseDetector(clock, LONGEST)
    pulse.start()
    pulse.start()
    for _ in range(20):
        clock.wait_for_waiters()
        clock.advance(LONGEST // 4)
        eventually(lambda: pulse._beat_at == clock.monotonic(), "it has beaten")
    assert pulse.pauses == 0
    pulse.stop()
    pulse.join(5_000)
    assert not any(thread.name == "pulse" for thread in threading.enumerate())


class Desk:
    """A forwarder with one thread, and what it reported; None where a message was not sent."""

    def __init__(self, clock: ManualClock) -> None:
        self.pulse = PauseDetector(clock, LONGEST)
        self.target = MemoryTarget(max_batch=1)
        route = Route(name="memory", target="memory:")
        self.forwarder = Forwarder(route, self.target, clock, threads=1, timeout=60_000, pulse=self.pulse)
        self.reports: dict[str, str | None] = {}

    def submit(self, id: str, pauses: int) -> None:
        self.forwarder.submit(self._report, [held(id)], pauses)

    def _report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        self.reports |= {one.id: None if results is None else results[0].outcome for one in batch}


@pytest.fixture
def desk(clock: ManualClock) -> Iterator[Desk]:
    made = Desk(clock)
    made.forwarder.start()
    yield made
    made.forwarder.stop()
    made.target.close()
    made.forwarder.join(5_000)


def test_what_was_pulled_before_a_pause_is_not_sent_after_it_and_what_is_being_sent_goes_on(
    desk: Desk, clock: ManualClock
) -> None:
    desk.target.answer("hang", id="sent")
    desk.submit("sent", 0)
    desk.target.wait_for_hanging()
    desk.submit("held", 0)
    clock.advance(LONGEST + 1)
    desk.submit("pulled anew", 1)
    desk.target.release()
    eventually(lambda: len(desk.reports) == 3, "all are reported")
    assert desk.reports == {"sent": "ok", "held": None, "pulled anew": "ok"}
    assert desk.target.ids == ["sent", "pulled anew"]
    assert not desk.forwarder.busy
