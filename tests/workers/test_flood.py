"""A burst drains through the backlog, and fresh messages pass beside it; wakes, waits and where a pull goes on."""

from __future__ import annotations

import pytest

from delayq.base.errors import StoreUnavailable
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import OK
from tests.workers.conftest import Worlds
from tests.workers.one_queue import START, OneQueue
from workers.queue.cursor import FRESH_EVERY, LATE
from workers.queue.pull import LONGEST_WAIT
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff

SMALL = Bounds(window=300, look=5, backoff=Backoff(100, 1_000))


def flood(world: OneQueue, count: int = 300) -> None:
    """Messages due in one ms, seen 100 ms later."""
    world.add_many((f"b{i:03}" for i in range(count)), topic="s.burst")
    world.advance(100)


def test_in_a_flood_fresh_messages_of_other_topics_are_taken_beside_the_backlog(worlds: Worlds) -> None:
    world = worlds(bounds=SMALL)
    flood(world)
    hand = world.take_over()
    hand.tick()
    hand.tick()
    assert len(world.stream("s.burst")) < 20  # it goes on by small looks
    for i in range(5):
        world.add(f"fresh{i}", topic="s.fresh", at=100 + 2 * FRESH_EVERY * i)
        world.add(f"general{i}", topic="g.t", at=100 + 2 * FRESH_EVERY * i)
        for _ in range(2):  # at the first one the topics are not known yet
            world.advance(FRESH_EVERY)
            hand.tick()
            hand.tick()
        assert world.stream("s.fresh") == [f"fresh{j}" for j in range(i + 1)]
        assert f"general{i}" in hand.sending
    assert len(world.stream("s.burst")) < 300
    hand.run(100, lambda held: OK)
    assert world.stream("s.burst") == [f"b{i:03}" for i in range(300)]
    assert world.records() == {}
    assert len(hand.sent) == len(set(hand.sent)) == 5


def test_in_a_flood_a_queue_whose_turn_it_is_not_pulls_what_is_fresh_and_nothing_else(worlds: Worlds) -> None:
    world = worlds(bounds=SMALL)
    flood(world)
    hand = world.take_over()
    hand.tick()
    hand.tick()
    before = world.stream("s.burst")
    assert hand.job.in_backlog
    for number in range(3):
        world.add(f"fresh{number}", topic="s.fresh", at=world.elapsed)
        for _ in range(2):  # at the first one the topic is not known yet
            world.advance(FRESH_EVERY)
            assert hand.job.presses
            hand.tick(backlog=False)
            assert not hand.job.presses
        assert world.stream("s.fresh") == [f"fresh{other}" for other in range(number + 1)]
    assert world.stream("s.burst") == before
    hand.run(100)
    assert len(world.stream("s.burst")) == 300


def test_a_head_that_is_only_a_little_late_is_no_flood(worlds: Worlds) -> None:
    world = worlds(bounds=SMALL)
    world.add_many((f"b{i:03}" for i in range(60)), topic="s.burst")
    world.advance(LATE)
    world.add("fresh", topic="s.fresh", at=LATE)
    hand = world.take_over()
    hand.tick()
    hand.tick()
    hand.tick()
    assert world.stream("s.fresh") == []  # in due order, as ever
    hand.settle()
    assert world.stream("s.fresh") == ["fresh"]


def test_in_a_flood_a_job_that_waits_for_room_rests_until_fresh_messages_or_a_report_are_due(worlds: Worlds) -> None:
    world = worlds(bounds=SMALL)
    world.add("a-other", topic="o.t")
    world.add_many((f"b{i:03}" for i in range(60)), topic="g.t")
    world.advance(100)
    hand = world.take_over()
    for _ in range(20):
        hand.tick()
    assert hand.job.in_flight.shares["general"].waiting
    assert hand.pause == FRESH_EVERY
    world.add("fresh", topic="o.t", at=101)
    world.advance(FRESH_EVERY - 1)
    assert hand.tick() == 1
    assert "fresh" not in hand.sending
    world.advance(1)
    hand.tick()
    assert "fresh" in hand.sending
    assert "b040" not in hand.sending
    hand.answer("b000")
    hand.tick()
    assert "b040" in hand.sending


def test_what_is_in_flight_at_one_due_in_any_number_does_not_keep_the_rest_waiting(worlds: Worlds) -> None:
    world = worlds(bounds=Bounds(window=3_000, look=50, backoff=Backoff(100, 1_000)))
    for i in range(700):
        world.add(f"m{i:03}", topic="og"[i % 2] + ".t")
    hand = world.take_over()
    assert len(hand.run(2_000, lambda held: OK)) == 700
    assert world.records() == {}
    assert len(set(hand.sent)) == 700


def test_more_messages_than_the_window_drain_without_a_wait_in_between(worlds: Worlds) -> None:
    world = worlds(bounds=Bounds(window=20, look=50, backoff=Backoff(100, 1_000)))
    for i in range(200):
        world.add(f"m{i:03}", ordering_key=f"k{i}")
    hand = world.take_over()
    hand.run(60, lambda held: OK)
    assert world.records() == {}


# -- waits and wakes -----------------------------------------------------------------------------------------------


def test_idle_queues_look_at_the_same_moment(worlds: Worlds) -> None:
    ends = set()
    for number in range(3):
        world = worlds()
        world.keys = KEYS.queue(number)
        hand = world.take_over()
        world.advance(100 * number)
        hand.settle()
        ends.add(world.elapsed + hand.pause)
    assert ends == {LONGEST_WAIT}


def test_the_wait_ends_when_the_next_message_is_due_or_after_a_second_and_says_so_in_redis(world: OneQueue) -> None:
    hand = world.take_over()
    hand.settle()
    world.advance(round(hand.tick()))
    assert [hand.tick() for _ in range(3)] == [LONGEST_WAIT] * 3
    assert world.field("sleep_until") == "none"
    begun = world.elapsed
    world.add("far", at=1_000_000)
    hand.settle()
    assert hand.pause <= LONGEST_WAIT
    world.add("m", at=begun + 400)
    hand.settle()
    assert hand.pause == 400
    assert world.field("sleep_until") == str(START + begun + 400)
    world.advance(400)
    assert hand.settle() == ["m"]


def test_an_earlier_message_wakes_the_job_and_is_found_also_before_what_was_pulled_and_a_later_one_does_not(
    world: OneQueue,
) -> None:
    hand = world.take_over()
    world.add("m", at=500)
    hand.settle()
    hand.woken = False
    woken = []
    for id, at in (("later", 600), ("sooner", 300)):
        world.add(id, at=at)
        woken.append(hand.woken)
    assert woken == [False, True]
    hand.settle()
    assert hand.pause == 300
    world.advance(500)
    assert hand.settle() == ["sooner", "m"]
    hand.woken = False
    world.add("a-earlier", at=500)  # the same due, and by id before the offset
    assert hand.woken
    assert hand.settle() == ["a-earlier"]


@pytest.mark.parametrize(
    ("behind", "at", "most"),
    [("", 100, LONGEST_WAIT), ("m", 0, 2 * LONGEST_WAIT + 100), ("m", 100, 2 * LONGEST_WAIT + 100)],
    ids=["ahead", "before-the-offset", "at-the-offset"],
)
def test_a_lost_wake_costs_at_most_a_second_and_two_looks_behind_the_offset(
    world: OneQueue, behind: str, at: int, most: int
) -> None:
    world.advance(100)
    if behind:
        world.add(behind, at=100)
    hand = world.take_over()
    assert hand.settle() == [behind] * bool(behind)
    world.hands.remove(hand)  # its wakes are lost
    world.add("a-lost", at=at)
    assert hand.run(most) == ["a-lost"]


def test_after_redis_was_away_what_the_targets_confirmed_is_acked_first_and_not_sent_again(
    world: OneQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = world.take_over()
    world.add("m")
    assert hand.settle() == ["m"]

    def away(self: Store, commands: object) -> list[StoreUnavailable]:
        return [StoreUnavailable("away") for _ in commands]  # type: ignore[attr-defined]

    hand.answer("m")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "run_many", away)
        pauses = []
        for _ in range(8):
            pauses.append(hand.tick())
            world.advance(max(1, round(pauses[-1])))
        assert 0 < min(pauses) <= max(pauses) <= 500
    assert hand.settle() == []
    assert world.records() == {}
    world.add("next", at=world.now - START)
    assert hand.settle() == ["next"]
