"""Within one ordering key and one target nothing overtakes, whatever happens on the general path."""

from __future__ import annotations

import random

import pytest

from delayq.store import commands
from delayq.store.keys import ParkedSet
from delayq.targets import OK, Result
from tests.support.amounts import amount
from tests.workers.conftest import Worlds
from tests.workers.one_queue import START, Hand, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff
from workers.sending.message import InFlightMessage

AWAY = Result.unavailable("away")
UNKNOWN = Result.unknown("timed out")
NO = Result.rejected("no")


def later(world: OneQueue) -> int:
    """The world's time, as `add` takes it."""
    return world.now - START


def test_messages_of_a_key_go_one_by_one_in_due_order_and_equal_dues_by_id(world: OneQueue) -> None:
    for id, at in (("z", 5), ("c", 7), ("a", 7), ("b", 7), ("y", 6)):
        world.add(id, at=at, ordering_key="k")
    world.advance(10)
    hand = world.take_over()
    for id in ("z", "y", "a", "b", "c"):
        hand.settle()
        assert hand.sending == [id]
        hand.answer(id)
    hand.settle()
    assert world.records() == {}


def test_other_keys_other_targets_and_messages_without_a_key_do_not_wait(world: OneQueue) -> None:
    world.add("a1", ordering_key="a")
    world.add("a2", ordering_key="a")
    world.add("b1", ordering_key="b")
    world.add("a3", topic="o.t", ordering_key="a")
    world.add("plain")
    hand = world.take_over()
    hand.settle()
    assert sorted(hand.sending) == ["a1", "a3", "b1", "plain"]


@pytest.mark.parametrize("outcome", [AWAY, UNKNOWN], ids=["unavailable", "unknown"])
def test_a_failed_message_is_not_overtaken_while_its_back_off_runs(world: OneQueue, outcome: Result) -> None:
    world.add("first", ordering_key="k")
    world.add("second", at=1, ordering_key="k")
    world.advance(1)
    hand = world.take_over()
    assert hand.settle() == ["first"]
    hand.answer("first", outcome)
    assert hand.settle() == []
    world.add("third", at=2, ordering_key="k")
    world.advance(1)
    assert hand.settle() == []
    assert world.attempts_of("first") == 1
    assert hand.run(48) == []  # at least half of the first back-off
    assert hand.run(60) == ["first"]
    hand.answer("first")
    assert hand.settle() == ["second"]
    hand.answer("second")
    assert hand.settle() == ["third"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_during_the_back_off_one_that_is_due_earlier_goes_first_and_a_cancel_lets_the_next_go(
    world: OneQueue, cancelled: bool
) -> None:
    world.advance(10)
    world.add("first", at=10, ordering_key="k")
    world.add("second", at=10, ordering_key="k")
    hand = world.take_over()
    hand.settle()
    hand.answer("first", AWAY)
    hand.settle()
    if cancelled:
        assert world.cancel("first") == "inFlight"
    else:
        world.add("earlier", at=10, ordering_key="k")  # the same due, and by id before it
    assert hand.run(1_500, lambda held: OK) == [*([] if cancelled else ["earlier", "first"]), "second"]


def test_a_buried_head_lets_its_successors_go(world: OneQueue) -> None:
    world.add_many(("a", "b", "c"), ordering_key="k", max_attempts=2)
    hand = world.take_over()
    answers = {"a": AWAY, "b": NO, "c": OK}
    assert hand.run(5_000, lambda held: answers[held.id]) == ["a", "a", "b", "c"]
    assert sorted(world.dead()) == ["a", "b"]


def test_a_redriven_message_takes_its_place_by_the_new_due(world: OneQueue) -> None:
    world.add_many((f"m{i}" for i in range(3)), ordering_key="k")
    hand = world.take_over()
    hand.run(20, lambda held: NO if held.id == "m0" else OK)
    world.advance(100)
    world.add("before", at=later(world) - 1, ordering_key="k")
    assert world.redrive("m0") == "scheduled"
    world.add("after", at=later(world) + 1, ordering_key="k")
    assert hand.run(50, lambda held: OK) == ["before", "m0", "after"]


def test_of_a_crowded_key_the_rest_is_parked_under_the_key_and_comes_back_in_order(world: OneQueue) -> None:
    ids = [f"m{i:03}" for i in range(100)]
    for i, id in enumerate(ids):
        world.add(id, at=i // 3, ordering_key="k")
    world.advance(50)
    hand = world.take_over()
    assert hand.settle() == ["m000"]
    assert hand.parked == [ParkedSet.of_lane("g.t", "k")]
    assert world.stats().parked == 84
    assert world.state_of("m099") == "parked"
    world.add("newer", at=50, ordering_key="k")
    hand.settle()
    assert world.state_of("newer") == "parked"
    hand.answer("m000")
    assert hand.settle() == ["m001"]
    new = world.take_over(node=2)  # what is parked comes back in order at the next owner, too
    assert new.run(30_000, lambda held: OK) == [*ids[1:], "newer"]
    assert new.parked == []


def test_an_old_owner_that_still_acts_overtakes_nothing(world: OneQueue) -> None:
    ids = [f"m{i}" for i in range(6)]
    world.add_many(ids, ordering_key="k")
    old, new = world.take_over(node=1), None
    assert old.settle() == ["m0"]
    new = world.take_over(node=2)
    assert new.settle() == ["m0"]
    old.answer("m0", AWAY)  # a retry by the old epoch does not count
    old.settle()
    assert old.job.fenced
    assert world.attempts_of("m0") == 0
    new.answer("m0")
    assert new.settle() == ["m1"]
    assert old.run(3_000) == []
    assert new.run(100, lambda held: OK) == ids[2:]


@pytest.mark.parametrize("seed", range(amount(5, 60)))
def test_whatever_targets_and_owners_do_each_key_arrives_in_order(worlds: Worlds, seed: int) -> None:
    dice = random.Random(seed)
    random.seed(seed)  # the jitter of the back-off and of the waits
    world = worlds(bounds=Bounds(window=60, look=20, max_attempts=100, backoff=Backoff(10, 100)))
    expected: dict[str, list[tuple[int, str]]] = {}
    for i in range(120):
        key, due = f"k{dice.randrange(4)}", dice.randrange(400)
        world.add(f"m{i:03}", at=due, ordering_key=key)
        expected.setdefault(key, []).append((due, f"m{i:03}"))
    arrived: list[str] = []
    hands = [world.take_over(node=0)]
    bad = dice.choice([0.05, 0.3, 0.6])

    def step(hand: Hand, bad: float) -> None:
        hand.tick()
        for one in hand.senders.values():
            going = [batch[0].ordering_key for _, batch in one.outbox]
            assert len(going) == len(set(going)), "two of a key are on their way at once"
            while one.outbox and dice.random() < 0.8:
                index = dice.randrange(len(one.outbox))
                id = one.ids[index]
                result = dice.choice([AWAY, UNKNOWN]) if dice.random() < bad else OK
                if result is OK or (result is UNKNOWN and dice.random() < 0.5):
                    arrived.append(id)
                one.answer(index, result)

    for _ in range(600):
        world.advance(dice.choice([0, 1, 1, 5, 20]))
        if dice.random() < 0.02:
            hands.append(world.take_over(node=len(hands)))
        for hand in hands[-2:]:
            if not hand.job.finished:
                step(hand, bad)
    last = hands[-1]
    for old in hands[:-1]:  # they end, and say what they knew
        for _ in range(5):
            step(old, 0)
    for _ in range(4_000):
        if not world.records():
            break
        step(last, 0)
        world.advance(max(1, min(200, round(last.pause))))
    assert world.records() == {}
    firsts = list(dict.fromkeys(arrived))
    for wanted in expected.values():
        order = [id for _, id in sorted(wanted)]
        assert [id for id in firsts if id in set(order)] == order


@pytest.mark.parametrize("lane", ["k:/g.t/", "k:general/"], ids=["of this version", "of a former version"])
def test_one_that_falls_due_while_its_elder_comes_back_from_the_former_owner_stays_behind_it(
    world: OneQueue, lane: str
) -> None:
    keys = [f"key-{number:02}" for number in range(30)]  # more than come back in one tick
    for key in keys:
        world.add(f"elder-{key}", ordering_key=key)
    former = "0000000000.00000000000000000001"
    pulled = world.store.run(commands.pull(world.keys, former, offset=0, room=100, now=world.now))
    assert isinstance(pulled, commands.Pulled)
    found = zip(pulled.tickets, pulled.scores, pulled.attempts, pulled.records, strict=True)
    for ticket, score, attempts, raw in found:
        elder = InFlightMessage(ticket, score, attempts, raw)
        world.store.run(commands.park(world.keys, former, f"{lane}{elder.ordering_key}", [elder]))
    hand = world.take_over()
    hand.tick()
    world.advance(1)
    for key in keys:
        world.add(f"younger-{key}", ordering_key=key, at=later(world))
    hand.run(1_500, lambda message: OK)
    for key in keys:
        assert [id for id in hand.sent if id.endswith(key)] == [f"elder-{key}", f"younger-{key}"]
