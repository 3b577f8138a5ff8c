"""A node knows when its clock is far from that of Redis, and does not waver."""

from __future__ import annotations

from typing import Any, cast

import pytest

from delayq.errors import StoreUnavailable
from delayq.store.store import Store
from delayq.testing import ManualClock
from workers.skew import EVERY, FAR, NEAR, STEADY, Skew


class Redis:
    """A Redis whose clock is off by `ahead` ms, and which takes `trip` ms to answer."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ahead = 0
        self.trip = 0
        self.away = False

    def run(self, command: Any) -> int:
        self.clock.advance(self.trip)
        if self.away:
            raise StoreUnavailable("away")
        return self.clock.now() + self.ahead


@pytest.fixture
def redis() -> Redis:
    return Redis(ManualClock())


@pytest.fixture
def skew(redis: Redis) -> Skew:
    return Skew(cast(Store, redis), redis.clock)


def look(skew: Skew, redis: Redis, ahead: int, trip: int = 0) -> None:
    redis.ahead, redis.trip = ahead, trip
    redis.clock.advance(EVERY)
    skew.tick()


@pytest.mark.parametrize(("ahead", "behind"), [(FAR, True), (-FAR, False), (3_600_000, True), (-3_600_000, False)])
def test_a_clock_that_is_far_off_is_told_and_only_one_that_is_late_is_behind(
    skew: Skew, redis: Redis, ahead: int, behind: bool
) -> None:
    look(skew, redis, ahead)
    assert (skew.far, skew.behind, skew.ms) == (True, behind, ahead)


@pytest.mark.parametrize("ahead", [0, 1, FAR - 1, 1 - FAR])
def test_a_small_difference_is_no_fault(skew: Skew, redis: Redis, ahead: int) -> None:
    look(skew, redis, ahead)
    assert not skew.far


def test_a_slow_answer_proves_nothing(skew: Skew, redis: Redis) -> None:
    look(skew, redis, -FAR, trip=1)  # the answer may have been on its way back for all of that time
    assert not skew.far
    look(skew, redis, -FAR - 1, trip=1)
    assert skew.far


def test_it_counts_as_right_only_after_it_has_been_right_for_a_while(skew: Skew, redis: Redis) -> None:
    look(skew, redis, FAR)
    for _ in range(3):
        look(skew, redis, NEAR)
        assert skew.far
        for _ in range(STEADY // EVERY):
            look(skew, redis, NEAR - 1)
            assert skew.far
    look(skew, redis, NEAR - 1)
    assert not skew.far


def test_a_redis_that_is_away_changes_nothing_but_is_said(skew: Skew, redis: Redis) -> None:
    look(skew, redis, FAR)
    redis.away = True
    look(skew, redis, 0)
    assert (skew.answers, skew.behind) == (False, True)
    redis.away = False
    look(skew, redis, FAR)
    assert skew.answers


def test_it_is_asked_now_and_then_only(skew: Skew, redis: Redis) -> None:
    look(skew, redis, 0)
    redis.ahead = FAR
    redis.clock.advance(EVERY - 1)
    skew.tick()
    assert not skew.far
