"""A queue that hands out messages and has none confirmed is stuck."""

from __future__ import annotations

import pytest

from delayq.testing import ManualClock
from workers.progress import BACK_OFF, Progress

LIMIT = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def progress(clock: ManualClock) -> Progress:
    return Progress("0", clock, LIMIT)


def see(
    progress: Progress, clock: ManualClock, after: int, *, confirmed: bool = False, outstanding: bool = True
) -> bool:
    clock.advance(after)
    progress.see(confirmed=confirmed, outstanding=outstanding)
    return progress.stuck


def test_a_queue_is_stuck_when_nothing_was_confirmed_for_the_limit_and_no_more_when_something_is(
    progress: Progress, clock: ManualClock
) -> None:
    assert not see(progress, clock, 5)
    assert not see(progress, clock, LIMIT - 1)
    assert see(progress, clock, 1)
    assert not see(progress, clock, 1, confirmed=True)
    assert not see(progress, clock, LIMIT - 1)
    assert see(progress, clock, 1)


def test_a_queue_without_work_is_never_stuck(progress: Progress, clock: ManualClock) -> None:
    see(progress, clock, 0)
    see(progress, clock, 1, confirmed=True, outstanding=False)
    for _ in range(100):
        assert not see(progress, clock, 1_000, outstanding=False)
    assert not see(progress, clock, 1)


def test_the_pause_before_the_next_attempt_is_no_progress_but_a_long_rest_is_a_new_beginning(
    progress: Progress, clock: ManualClock
) -> None:
    see(progress, clock, 0)
    see(progress, clock, BACK_OFF, outstanding=False)
    assert see(progress, clock, LIMIT - BACK_OFF)
    see(progress, clock, BACK_OFF + 1, outstanding=False)
    assert not see(progress, clock, LIMIT)
