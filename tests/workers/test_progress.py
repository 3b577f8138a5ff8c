"""A queue that hands out messages and has none confirmed is stuck."""

from __future__ import annotations

import pytest

from delayq.targets import OK, Result
from delayq.testing import ManualClock
from tests.workers.one_queue import OneQueue
from workers.queue.symptoms import BACK_OFF, PULLS_FAIL_AFTER, Progress

LIMIT = 60_000


@pytest.fixture
def progress(clock: ManualClock) -> Progress:
    return Progress("0", clock, LIMIT)


#: What follows after so many ms: something is out, confirmed or neither; and whether the queue is stuck then.
Steps = list[tuple[int, str, bool]]
NOTHING_CONFIRMED: Steps = [
    (5, "out", False),
    (LIMIT - 1, "out", False),
    (1, "out", True),
    (1, "confirmed", False),
    (LIMIT - 1, "out", False),
    (1, "out", True),
]
WITHOUT_WORK: Steps = [(0, "out", False), *[(LIMIT // 60, "none", False)] * 100, (1, "out", False)]
#: The pause before the next attempt is no progress, but a long rest is a new beginning.
BACKING_OFF: Steps = [
    (0, "out", False),
    (BACK_OFF, "none", False),
    (LIMIT - BACK_OFF, "out", True),
    (BACK_OFF + 1, "none", False),
    (LIMIT, "out", False),
]


@pytest.mark.parametrize("steps", [NOTHING_CONFIRMED, WITHOUT_WORK, BACKING_OFF], ids=["work", "none", "back-off"])
def test_a_queue_is_stuck_when_nothing_was_confirmed_for_the_limit_and_no_more_when_something_is(
    progress: Progress, clock: ManualClock, steps: Steps
) -> None:
    for after, what, stuck in steps:
        clock.advance(after)
        progress.record(confirmed=what == "confirmed", outstanding=what != "none")
        assert progress.stuck == stuck


AWAY = Result.unavailable("the broker is away")


def test_a_queue_of_which_all_that_is_out_waits_for_a_broken_target_is_not_stuck(world: OneQueue) -> None:
    """D13: A queue whose messages in flight all wait for a target with an open circuit is not stuck:
    `delayq_circuit_open` shows it."""
    hand = world.take_over()
    for number in range(30):
        world.add(f"m{number:02}", at=200 * number)
        world.add(f"n{number:02}", topic="nowhere", at=200 * number + 100)
    for _ in range(40):
        hand.run(LIMIT // 20, lambda held: AWAY)
        assert not hand.job.stuck
    assert hand.senders["general"].circuit.open
    assert world.stats().parked == 60
    hand.run(30_000, lambda held: OK)
    assert [id for id in world.records() if id.startswith("m")] == []


def test_a_queue_whose_sends_do_not_end_is_stuck_also_beside_a_broken_target(world: OneQueue) -> None:
    hand = world.take_over()
    world.add_many(f"m{number}" for number in range(6))
    hand.run(1_000, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    world.add("hung", topic="o.t", at=world.elapsed)

    def answered() -> None:
        """Probes of the broken target fail; what the other target has got hangs."""
        hand.settle()
        if hand.senders["general"].outbox:
            hand.answer_all(AWAY)

    for _ in range(LIMIT // 1_000):
        answered()
        world.advance(1_000)
    answered()
    assert hand.job.stuck
    hand.answer_all(OK, route="other")
    answered()
    assert not hand.job.stuck


def test_a_queue_that_can_only_fail_to_be_pulled_is_told_until_a_pull_goes_through(
    progress: Progress, clock: ManualClock
) -> None:
    progress.pulled("WRONGTYPE")
    clock.advance(PULLS_FAIL_AFTER - 1)
    progress.pulled("WRONGTYPE")
    assert progress.pulls_fail is None
    progress.pulled(None)
    progress.pulled("WRONGTYPE")
    clock.advance(PULLS_FAIL_AFTER)
    progress.pulled("NOPERM")
    assert str(progress.pulls_fail) == "NOPERM"
    progress.pulled(None)
    assert progress.pulls_fail is None
