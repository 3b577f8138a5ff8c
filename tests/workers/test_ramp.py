"""The backlog of a queue that was taken over is pulled slowly at first, and nothing else is."""

from __future__ import annotations

import pytest

from delayq.config import Settings
from delayq.targets import OK
from tests.workers.conftest import Worlds
from tests.workers.one_queue import OneQueue
from workers.node.node import Node
from workers.queue.flood import FRESH_EVERY, LATE
from workers.queue.policy import Policy
from workers.queue.ramp import EVERY, FROM, Ramp
from workers.sending.backoff import Backoff

LASTS = 1_000
RAMPS = Policy(window=5_000, look=500, ramp=LASTS, backoff=Backoff(100, 1_000))


@pytest.fixture
def world(worlds: Worlds) -> OneQueue:
    return worlds(policy=RAMPS)


def backlog(world: OneQueue, count: int, topic: str = "s.burst") -> None:
    """Messages due 100 ms before a new owner comes."""
    for i in range(count):
        world.add(f"b{i:04}", topic=topic)
    world.advance(100)


@pytest.mark.parametrize("most", [50, 500])
def test_the_pace_begins_low_and_doubles_until_it_is_no_bound(most: int) -> None:
    ramp, now, taken = Ramp(LASTS), 0, 0
    by: dict[int, int] = {}
    while now <= LASTS:
        look = ramp.look(now, most)
        ramp.see(now, look, more=True)
        taken += look
        by[now] = taken
        now += max(1, round(ramp.holds_for(now)))
    assert by[0] == FROM
    assert max(count for at, count in by.items() if at < 2 * EVERY) <= 3 * FROM
    assert max(count for at, count in by.items() if at < 500) < 3_000
    assert taken > 5_000
    ramp.see(now, most, more=True)
    assert (ramp.look(now, most), ramp.holds_for(now)) == (most, 0)


def test_of_a_large_backlog_little_is_pulled_at_first_and_all_in_the_end(world: OneQueue) -> None:
    backlog(world, 600)
    hand = world.take_over()
    hand.settle()
    assert len(world.stream("s.burst")) == FROM
    hand.run(EVERY + 1)
    assert FROM < len(world.stream("s.burst")) <= 3 * FROM
    hand.run(LASTS)
    assert world.stream("s.burst") == [f"b{i:04}" for i in range(600)]


def test_a_target_gets_little_at_first_and_all_in_the_end(world: OneQueue) -> None:
    backlog(world, 400, "g.t")
    hand = world.take_over()
    hand.settle()
    assert len(hand.sent) <= FROM
    hand.run(LASTS, lambda held: OK)
    assert sorted(hand.sent) == [f"b{i:04}" for i in range(400)]
    assert world.records() == {}


def test_fresh_messages_do_not_wait_for_the_backlog(world: OneQueue) -> None:
    backlog(world, 600)
    hand = world.take_over()
    hand.settle()
    for i in range(3):
        world.add(f"fresh{i}", topic="s.fresh", at=100 + FRESH_EVERY * (i + 1))
    hand.run(4 * FRESH_EVERY)
    assert world.stream("s.fresh") == [f"fresh{i}" for i in range(3)]
    assert len(world.stream("s.burst")) < 600


def test_fresh_messages_do_not_wait_for_a_backlog_that_is_only_a_little_late(worlds: Worlds) -> None:
    world = worlds(policy=RAMPS)
    for i in range(300):
        world.add(f"b{i:04}", topic="s.burst")
    hand = world.take_over()  # at the very ms of their due: that is no flood yet
    hand.settle()
    world.add("fresh", topic="s.fresh", at=LATE + 1)
    hand.run(LATE + 2 * FRESH_EVERY + 2)
    assert world.stream("s.fresh") == ["fresh"]
    assert len(world.stream("s.burst")) < 300


def test_a_small_queue_is_pulled_at_once(world: OneQueue) -> None:
    backlog(world, FROM)
    hand = world.take_over()
    hand.settle()
    assert len(world.stream("s.burst")) == FROM


def test_a_later_burst_is_pulled_at_full_speed(world: OneQueue) -> None:
    hand = world.take_over()
    hand.settle()
    backlog(world, 600)
    hand.settle()
    assert len(world.stream("s.burst")) == 600


def test_what_the_targets_confirmed_is_acked_while_the_backlog_waits(world: OneQueue) -> None:
    backlog(world, 300, "g.t")
    hand = world.take_over()
    hand.settle()
    answered = len(hand.sending)
    hand.answer_all()
    hand.settle()
    assert len(hand.sent) <= FROM
    assert len(world.records()) == 300 - answered


def test_when_nothing_is_left_behind_it_is_over() -> None:
    ramp = Ramp(LASTS)
    ramp.see(0, FROM, more=True)
    assert ramp.holds_for(0) == EVERY
    ramp.see(EVERY, 10, more=False)
    ramp.see(EVERY + 1, 500, more=True)
    assert ramp.holds_for(EVERY + 1) == 0


def test_it_is_what_a_node_does() -> None:
    node = Node(Settings(redis_url="redis://127.0.0.1:1"))
    assert node._policy.ramp == LASTS
    node.store.close()
