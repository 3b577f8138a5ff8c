"""What is parked comes back, and holds up nothing else, whatever replies its owner did not hear."""

from __future__ import annotations

import random

import pytest

from delayq.store import commands
from delayq.store.keys import ParkedSet
from delayq.targets import OK, Result
from tests.protocol.world import RETENTION
from tests.workers.living import FaultyStore
from tests.workers.one_queue import START, Hand, OneQueue
from workers.queue.in_flight import InFlight
from workers.queue.queue_context import Incarnation
from workers.sending.message import InFlightMessage

AWAY = Result.unavailable("away")


def faulty(world: OneQueue) -> tuple[Hand, FaultyStore]:
    """An owner, and the store by which it is told of Redis."""
    store, real = FaultyStore(world.store, random.Random(1), lambda: world.now), world.store
    world.store = store  # type: ignore[assignment]  # it is what the owner uses
    hand = world.take_over()
    world.store = real
    return hand, store


def break_target(world: OneQueue, hand: Hand) -> None:
    """Let the circuit of the general route open."""
    for number in range(3):
        world.add(f"failing{number}", at=world.elapsed)
    hand.settle()
    hand.answer_all(AWAY)
    hand.tick()
    assert hand.senders["general"].circuit.open


def test_a_target_that_hangs_does_not_hold_up_the_same_key_on_its_way_to_another_one(world: OneQueue) -> None:
    """E17 (a target hangs; another one has the same ordering key): The other target's messages are on time: a key
    waits only within its topic."""
    for number in range(20):
        world.add(f"a{number:02}", at=number, ordering_key="k")
    world.add("other", topic="o.t", at=30, ordering_key="k")
    world.advance(40)
    hand = world.take_over()
    hand.settle()
    assert hand.sending == ["a00", "other"]
    assert hand.parked == [ParkedSet.of_lane("g.t", "k")]


def test_lanes_whose_names_look_alike_are_not_the_same(world: OneQueue) -> None:
    for number, key in enumerate(("k", "/k", "k:", "g.t/k", "g.t/g.t/k")):
        for place in range(18):
            world.add(f"{number}-{place:02}", at=place, ordering_key=key)
    world.advance(40)
    hand = world.take_over()
    hand.settle()
    assert len(hand.parked) == 5
    assert sorted(hand.run(30_000, lambda held: OK)) == sorted(
        f"{n}-{place:02}" for n in range(5) for place in range(1, 18)
    )


def test_messages_whose_release_was_done_twice_come_in_order(world: OneQueue) -> None:
    hand, store = faulty(world)
    ids = [f"m{number:02}" for number in range(60)]
    for number, id in enumerate(ids):
        world.add(id, at=number, ordering_key="k")
    world.advance(60)
    hand.settle()
    store.fault = "again"
    assert hand.run(5_000, lambda held: OK) == ids[1:]


def test_what_was_parked_unheard_before_a_tick_failed_comes_back(world: OneQueue) -> None:
    """C19 (a reply is lost, then a tick fails): The worker repeats it or pulls again.

    Parked messages return in order once their target accepts them.
    """
    hand, store = faulty(world)
    break_target(world, hand)
    for number in range(3):
        world.cancel(f"failing{number}")  # else their return would tell of the set
    for number in range(5):
        world.add(f"m{number}", at=world.elapsed + 1, ordering_key="k")
    world.advance(1)
    store.fault = "lost all"
    hand.tick()
    store.fault = ""
    hand.job.in_flight.reset()
    world.advance(30_000)
    sent = hand.run(40_000, lambda held: OK)
    assert [id for id in sent if id.startswith("m")] == [f"m{number}" for number in range(5)]
    assert world.records() == {}


def test_a_message_that_waited_for_room_and_was_being_parked_when_a_tick_failed_is_sent(world: OneQueue) -> None:
    hand, store = faulty(world)
    for number in range(40):
        world.add(f"hung{number:02}")
    hand.settle()
    world.add("keyed", ordering_key="k")
    hand.settle()
    assert "keyed" not in hand.sending
    world.advance(200)
    store.fault = "away"
    hand.tick()
    assert hand.job.in_flight.to_park("t:general")
    hand.job.in_flight.reset()
    store.fault = ""
    hand.answer_all()
    assert hand.run(5_000, lambda held: OK) == ["keyed"]
    assert world.records() == {}


def test_a_parked_set_that_its_owner_never_heard_of_is_found_within_a_second(world: OneQueue) -> None:
    """As after Redis went back in time over a release."""
    hand = world.take_over()
    hand.settle()
    world.add("lost", ordering_key="k")
    world.add("lost too")
    pulled = world.store.run(commands.pull(world.keys, hand.job.epoch, offset=0, room=10, now=world.now))
    assert isinstance(pulled, commands.Pulled)
    for name, place in ((ParkedSet.of_lane("g.t", "k"), 0), ("t:general", 1)):
        raw = pulled.tickets[place], pulled.scores[place], pulled.attempts[place], pulled.records[place]
        world.store.run(commands.park(world.keys, hand.job.epoch, name, [InFlightMessage(*raw)]))
    hand.settle()
    assert hand.parked == []
    assert sorted(hand.run(1_100, lambda held: OK)) == ["lost", "lost too"]
    assert world.records() == {}


def test_messages_that_stand_in_the_queue_again_after_they_were_parked_are_pulled(world: OneQueue) -> None:
    """As after Redis went back in time over a park."""
    hand = world.take_over()
    break_target(world, hand)
    world.add("m", at=world.elapsed)
    hand.settle()
    assert world.state_of("m") == "parked"
    name = world.keys.parked("t:general")
    world.store.run(commands.plain("ZUNIONSTORE", world.keys.queue, 2, world.keys.queue, name, read=int))
    world.store.run(commands.plain("DEL", name, read=int))
    world.store.run(commands.plain("HDEL", world.keys.state, "parked:t:general", read=int))
    assert "m" in hand.run(40_000, lambda held: OK)
    assert world.records() == {}


def test_a_message_that_stands_in_the_queue_again_after_it_was_delivered_is_pulled(world: OneQueue) -> None:
    """As after Redis went back in time over an ack."""
    hand = world.take_over()
    world.add("m", at=world.elapsed)
    record = world.store.run(commands.plain("HGET", world.keys.pool, "m", read=bytes))
    hand.settle()
    (ticket,) = hand.job.in_flight.messages
    place = world.now
    world.advance(1)
    world.add("later", at=world.elapsed)
    hand.run(100, lambda held: OK)
    assert world.records() == {}
    world.store.run(commands.plain("HSET", world.keys.pool, "m", record, read=int))
    world.store.run(commands.plain("ZADD", world.keys.queue, place, ticket, read=int))
    assert hand.run(1_100, lambda held: OK) == ["m"]


def test_a_message_that_was_changed_while_its_failure_was_told_is_not_overtaken(world: OneQueue) -> None:
    for number in range(3):
        world.add(f"m{number}", at=number + 1, ordering_key="k")
    world.advance(5)
    hand = world.take_over()
    assert hand.settle() == ["m0"]
    hand.answer("m0", AWAY)
    world.store.run(commands.plain("HSET", world.keys.attempts, "m0", 2, read=int))
    hand.job.wake(START)  # it pulls from the front, past the very message
    assert hand.run(5_000, lambda held: OK) == ["m0", "m1", "m2"]


def test_what_arrives_long_after_its_owner_went_on_does_nothing(world: OneQueue) -> None:
    hand, store = faulty(world)
    break_target(world, hand)
    world.add("m", at=world.elapsed)
    hand.tick()
    store.fault = "late"
    hand.tick()
    (late,), store.late, store.fault = store.late, [], ""
    assert "park" in [command.script for command in late]
    while "m" not in hand.sending:
        hand.run(100)
        for id in hand.sending:
            if id != "m":
                hand.answer(id)
    world.store.run_many(late)
    assert world.state_of("m") == "inFlight"
    assert world.stats().parked_sets == ()


def test_a_closed_queue_in_which_all_that_is_parked_was_cancelled_is_done_with_though_its_target_is_away(
    world: OneQueue,
) -> None:
    hand = world.take_over()
    break_target(world, hand)
    ids = [f"m{number:03}" for number in range(120)]
    for id in ids:
        world.add(id, at=world.elapsed)
    hand.run(200)
    world.store.run(commands.close(world.keys))
    for id in (*ids, *(f"failing{number}" for number in range(3))):
        assert world.cancel(id) == "inFlight"
    hand.run(11_000, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    assert world.stats().parked_sets == ()
    assert world.store.run(commands.is_drained(world.keys, now=world.now, retention=RETENTION))


# -- rules taken out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["incarnations", "missing tickets that are looked for"])
def test_these_tests_show_what_breaks_without_a_rule(
    rule: str, world: OneQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule == "incarnations":
        monkeypatch.setattr(Incarnation, "advance", lambda self: setattr(self, "name", self.epoch))
        shows = test_what_arrives_long_after_its_owner_went_on_does_nothing
    else:
        monkeypatch.setattr(InFlight, "misses", lambda self, place, start: False)
        shows = test_a_message_that_stands_in_the_queue_again_after_it_was_delivered_is_pulled
    with pytest.raises(AssertionError):
        shows(world)
