"""A node knows when its clock is far from that of Redis, and does not waver."""

from __future__ import annotations

import pytest

from delayq.testing import ManualClock
from workers.node.redis_clock import FAR, NEAR, STEADY, Skew

EVERY = 2_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def skew(clock: ManualClock) -> Skew:
    return Skew(clock)


def look(skew: Skew, clock: ManualClock, ahead: int, trip: int = 0) -> None:
    """A Redis whose clock is off by `ahead` ms answers after `trip` ms."""
    clock.advance(EVERY)
    skew.compare(clock.now() + ahead, clock.monotonic() - trip)


@pytest.mark.parametrize(("ahead", "behind"), [(FAR, True), (-FAR, False), (3_600_000, True), (-3_600_000, False)])
def test_a_clock_that_is_far_off_is_told_and_only_one_that_is_late_is_behind(
    skew: Skew, clock: ManualClock, ahead: int, behind: bool
) -> None:
    look(skew, clock, ahead)
    assert (skew.far, skew.behind, skew.ms) == (True, behind, ahead)


@pytest.mark.parametrize("ahead", [0, 1, FAR - 1, 1 - FAR])
def test_a_small_difference_is_no_fault(skew: Skew, clock: ManualClock, ahead: int) -> None:
    look(skew, clock, ahead)
    assert not skew.far


def test_a_slow_answer_proves_nothing(skew: Skew, clock: ManualClock) -> None:
    look(skew, clock, -FAR, trip=1)  # the answer may have been on its way back for all of that time
    assert not skew.far
    look(skew, clock, -FAR - 1, trip=1)
    assert skew.far


def test_only_a_clock_that_was_far_behind_itself_is_behind(skew: Skew, clock: ManualClock) -> None:
    """One that was far ahead, and has been put right, is not behind by the ms that is left."""
    look(skew, clock, -FAR)
    look(skew, clock, 1)
    assert (skew.far, skew.behind) == (True, False)


def test_a_clock_is_behind_until_it_is_seen_near_again(skew: Skew, clock: ManualClock) -> None:
    for ahead, trip, behind in [
        (FAR, 0, True),
        (NEAR, 0, True),
        (NEAR - 1, 1, True),  # it may have been NEAR, by the length of the trip
        (NEAR - 1, 0, False),
        (FAR - 1, 0, False),
        (FAR - 1, 5, False),  # it need not be FAR
    ]:
        look(skew, clock, ahead, trip)
        assert skew.behind == behind, (ahead, trip)


def test_it_counts_as_right_only_after_it_has_been_right_for_a_while(skew: Skew, clock: ManualClock) -> None:
    look(skew, clock, FAR)
    for _ in range(3):
        look(skew, clock, NEAR)
        assert skew.far
        for _ in range(STEADY // EVERY):
            look(skew, clock, NEAR - 1)
            assert skew.far
    look(skew, clock, NEAR - 1)
    assert not skew.far
