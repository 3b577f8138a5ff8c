"""One question tells a node whether Redis answers, its time, and which layouts are listed; and how far clocks are apart."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coordinator import REDIS_AWAY
from delayq.base.errors import StoreUnavailable
from delayq.store import commands
from delayq.store.commands import Change, Glance
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout
from delayq.testing import ManualClock
from workers.node.duties.redis_clock import FAR, NEAR, STEADY, RedisClock, Skew

EVERY = 1_000
LISTED = (Layout(16), Layout(4, 16))


class Redis:
    """A Redis whose clock is far ahead, and which takes `trip` ms to answer."""

    keys = KEYS

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.skew = Skew(self.clock)
        self.trip = 0
        self.away = False
        self.asked = 0

    def run(self, command: Any) -> Glance:
        self.asked += 1
        self.clock.advance(self.trip)
        if self.away:
            raise StoreUnavailable("away")
        return Glance(self.clock.now() + FAR, LISTED, "")


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def redis_clock(redis: Redis) -> RedisClock:
    return RedisClock(cast(Store, redis), redis.skew, redis.clock)


def test_a_glance_compares_the_clocks_by_the_length_of_the_trip(redis_clock: RedisClock, redis: Redis) -> None:
    redis.trip = 100
    assert redis_clock.glance() is not None
    assert (redis.skew.far, redis.skew.ms) == (True, FAR + 50)
    redis.trip = 0
    glance = redis_clock.glance()
    assert glance is not None
    assert glance.layouts == LISTED


def test_a_process_that_stands_still_behind_an_answer_has_no_wrong_clock(
    redis_clock: RedisClock, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = redis.clock.now

    def after_a_pause() -> int:
        redis.clock.advance(FAR * 3)  # between the answer and the look at the own clock
        return real()

    answer = redis.run(None)
    monkeypatch.setattr(redis, "run", lambda _: answer)
    monkeypatch.setattr(redis.clock, "now", after_a_pause)
    redis_clock.glance()
    assert not redis.skew.far


@pytest.mark.parametrize("wait", [EVERY, 10 * REDIS_AWAY], ids=["soon", "after-a-round-that-took-long"])
def test_a_redis_that_is_away_is_out_of_reach_only_after_a_while_without_an_answer(
    redis_clock: RedisClock, redis: Redis, wait: int
) -> None:
    redis_clock.glance()
    redis.away = True
    redis.clock.advance(wait)
    assert redis_clock.glance() is None
    assert (redis_clock.answers, redis_clock.reachable, redis.skew.far) == (False, True, True)
    redis.clock.advance(REDIS_AWAY)
    assert not redis_clock.reachable
    redis.away = False
    redis_clock.glance()
    assert (redis_clock.answers, redis_clock.reachable) == (True, True)


def test_what_the_script_says(store: Store) -> None:
    assert store.run(commands.glance(KEYS, now=7)) == Glance(7, (), ""), "nobody has used it yet"
    store.run(commands.layout(KEYS, 16))
    store.run(commands.set_layouts(KEYS, LISTED[:1], LISTED))
    store.run(commands.set_policies(KEYS, [Change("pause:t", "{}")], maker="0000000007"))
    glance = store.run(commands.glance(KEYS))
    assert (glance.layouts, glance.policies) == (LISTED, "0000000001.0000000007")
    assert abs(glance.now - store.run(commands.redis_now())) < 60_000


# -- how far the clocks are apart ------------------------------------------------------------------------------------------


@pytest.fixture
def skew(clock: ManualClock) -> Skew:
    return Skew(clock)


def look(skew: Skew, clock: ManualClock, ahead: int, trip: int = 0) -> None:
    """A Redis whose clock is off by `ahead` ms answers after `trip` ms."""
    clock.advance(EVERY)
    skew.compare(clock.now() + ahead, clock.monotonic() - trip)


@pytest.mark.parametrize("ahead", [FAR, -FAR, 3_600_000, -3_600_000, 0, 1, FAR - 1, 1 - FAR])
def test_a_clock_that_is_far_off_is_told_and_only_one_that_is_late_is_behind(
    skew: Skew, clock: ManualClock, ahead: int
) -> None:
    look(skew, clock, ahead)
    assert (skew.far, skew.behind) == (abs(ahead) >= FAR, ahead >= FAR)
    assert skew.ms == ahead


def test_only_a_clock_that_was_far_behind_itself_is_behind(skew: Skew, clock: ManualClock) -> None:
    """G3: A clock that was ahead and is corrected is not behind, nor is a process that was stopped while Redis
    answered.

    One that was far ahead, and has been put right, is not behind by the ms that is left.
    """
    for ahead, far in (
        (-FAR, False),
        (-FAR - 1, True),
    ):  # the answer may have been on its way back for all of that time
        look(skew, clock, ahead, trip=1)
        assert skew.far == far
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
