"""A backlog that a pause or a limit held drains in the order of its keys, also if its owner pulls from before it."""

from __future__ import annotations

import random

import pytest

from delayq.store import commands
from delayq.store.commands import Change
from delayq.targets import OK, Result
from tests.support.amounts import amount
from tests.workers.conftest import Worlds
from tests.workers.one_queue import Hand, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff
from workers.sending.message import LOOK_AGAIN

AWAY = Result.unavailable("away")
BACKOFF = Backoff(100, 1_000)


def bounds(window: int) -> Bounds:
    return Bounds(window=window, look=50, max_attempts=3, backoff=BACKOFF)


@pytest.fixture
def hand(worlds: Worlds) -> Hand:
    """A new owner of a queue with a backlog that was just resumed. It sends a1, x and y; a2 waits for a1, a3 for room."""
    world = worlds(bounds=bounds(window=9))  # each of the three routes has room for 3
    world.take_over(node=1)
    world.pause("g.t")
    for at, (id, key) in enumerate([("a1", "a"), ("a2", "a"), ("x", ""), ("y", ""), ("a3", "a")]):
        world.add(id, at=at, ordering_key=key)
    world.advance(10)
    world.hands[0].settle()
    assert world.aside() == {"h:g.t": 5}
    made = world.take_over(node=1)  # its pulls begin at 0, and find nothing in the queue
    world.pause()
    made.settle()
    assert made.sending == ["a1", "x", "y"]
    return made


def keyed(sent: list[str]) -> list[str]:
    """The messages with the ordering key, each once."""
    return list(dict.fromkeys(id for id in sent if id.startswith("a")))


def test_a_release_does_not_pass_a_message_that_waited_too_long_behind_one_that_its_tick_confirms(hand: Hand) -> None:
    hand.world.advance(LOOK_AGAIN + 100)  # a2 has to be pulled again
    for id in ("a1", "x", "y"):
        hand.answer(id)
    hand.tick()  # the ack and the release go in one packet
    hand.run(100, lambda _: OK)
    assert keyed(hand.sent) == ["a1", "a2", "a3"]


def test_a_release_does_not_pass_a_message_that_was_changed_while_its_failure_was_recorded(hand: Hand) -> None:
    world = hand.world
    hand.answer("a1", AWAY)
    hand.answer("x")
    hand.answer("y")
    world.store.run(commands.plain("HSET", world.keys.attempts, "a1", 2, read=int))
    hand.tick()  # the failure and the release go in one packet
    sent = len(hand.sent)
    hand.run(5_000, lambda _: OK)
    assert keyed(hand.sent[sent:]) == ["a1", "a2", "a3"]


@pytest.mark.parametrize("limit", ["pause", "rate", "none"])
@pytest.mark.parametrize("seed", range(amount(12, 400)))
def test_a_backlog_drains_in_order_however_slow_its_target_is(worlds: Worlds, seed: int, limit: str) -> None:
    dice = random.Random(f"{limit} {seed}")
    random.seed(seed)  # jitter
    world = worlds(bounds=bounds(window=dice.choice((12, 30, 60))))
    hand = world.take_over()
    if limit == "pause":
        world.pause("g.t")
    elif limit == "rate":
        world.change(Change("policy:p", '{"match": "g.t", "rate": 1, "burst": 1}'))
    keys = [*(f"k{number}" for number in range(dice.choice((1, 2, 4, 8)))), *[""] * dice.choice((0, 2))]
    places: dict[str, tuple[str, tuple[int, str]]] = {}  # by id: its key, and its place in the queue
    at = 0
    for number in range(dice.choice((20, 40, 80))):
        at += dice.choice((0, 1, 30, 200))
        id, key = f"m{number:03}", dice.choice(keys)
        places[id] = key, (at, id)
        world.add(id, at=at, ordering_key=key)
    world.advance(at + 10)
    hand.settle()
    for _ in range(10 if limit == "rate" else 0):  # it gets short, and the messages are held
        hand.limits.tick()
        world.advance(150)
        hand.settle()
    assert limit == "none" or world.aside()
    if limit == "pause":
        world.pause()
    elif limit == "rate":
        world.change(Change("policy:p", ""))
    drain(world, hand, dice)
    latest: dict[str, tuple[int, str]] = {}
    for id in hand.sent:
        key, place = places[id]
        assert not key or latest.get(key, (-1, "")) <= place, f"{latest[key]} was sent before {place} of {key}"
        latest[key] = place
    assert set(hand.sent) == set(places)


def drain(world: OneQueue, hand: Hand, dice: random.Random) -> None:
    """Answer few sends or all of them, and let time pass between two ticks, until the queue is empty."""
    outbox = hand.senders["general"].outbox
    for _ in range(3_000):
        for _ in range(dice.choice((0, 1, 2, len(outbox)))):
            if outbox:
                hand.answer(outbox[dice.randrange(len(outbox))][1][0].id)
        world.advance(dice.choice((0, 1, 20, 300, 700)))
        hand.tick()
        if not world.records():
            return
    raise AssertionError(f"the backlog never drains: {world.aside()}")
