"""A process that stood still sends nothing of what it held before."""

from __future__ import annotations

import threading

from delayq.testing import ManualClock
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.conftest import Desks
from workers.sending.stall_detector import StallDetector

LONGEST = 1_000


def test_a_gap_between_two_looks_that_is_longer_than_the_longest_is_a_pause(clock: ManualClock) -> None:
    stalls = StallDetector(clock, LONGEST)
    assert stalls.count == 0
    clock.advance(LONGEST)
    assert stalls.count == 0
    clock.advance(LONGEST + 1)
    assert [stalls.count, stalls.count] == [1, 1]
    clock.advance(LONGEST + 1)
    assert stalls.count == 2


def test_its_thread_looks_often_enough_that_a_quiet_process_has_no_pauses(clock: ManualClock) -> None:
    stalls = StallDetector(clock, LONGEST)
    stalls.start()
    stalls.start()
    for _ in range(20):
        clock.wait_for_waiters(timeout=PATIENCE)
        clock.advance(LONGEST // 4)
        eventually(lambda: stalls._beat_at == clock.monotonic(), "it has beaten")
    assert stalls.count == 0
    stalls.stop()
    stalls.join(60_000)
    assert not any(thread.name == "pulse" for thread in threading.enumerate())


def test_what_was_pulled_before_a_pause_is_not_sent_after_it_and_what_is_being_sent_goes_on(
    desks: Desks, clock: ManualClock
) -> None:
    desk = desks(clock=clock, stalls=StallDetector(clock, LONGEST))
    desk.hang("sent")
    desk.submit("held")
    clock.advance(LONGEST + 1)
    desk.submit("pulled anew", stalls=1)
    desk.target.release()
    assert desk.wait_for_reports(3) == {"sent": ["ok"], "held": [None], "pulled anew": ["ok"]}
    assert desk.target.ids == ["sent", "pulled anew"]
    assert not desk.sender.busy
