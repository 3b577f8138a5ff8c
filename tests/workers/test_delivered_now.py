"""What somebody has delivered now goes once, past a circuit that is open, and by force past a pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from delayq.store import commands
from delayq.store.commands import Change
from delayq.targets import OK, Result
from tests.workers.one_queue import OneQueue

Worlds = Callable[..., OneQueue]
DOWN = Result.unavailable("down")


def deliver(world: OneQueue, *ids: str, force: bool = False, topics: Sequence[str] = ("g.t", "s.t")) -> list[str]:
    answer = world.store.run(commands.deliver_now(world.keys, ids, force=force, held=topics, now=world.now))
    world._pass_wakes()
    return [result for result, _ in answer]


@pytest.mark.parametrize("asked", [1, 50], ids=["set aside", "not due yet"])
def test_by_force_one_of_a_paused_topic_goes_and_no_other_and_once(worlds: Worlds, asked: int) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("*")
    for id in ("a", "b", "sa", "sb"):
        world.add(id, topic="s.t" if id[0] == "s" else "g.t", at=asked)
    world.advance(10)
    hand.settle()
    assert deliver(world, "a", "sa") == ["held"] * 2
    assert deliver(world, "a", "sa", force=True) == ["scheduled"] * 2
    assert hand.run(3_000) == ["a"]
    assert world.stream("s.t") == ["sa"]
    hand.answer("a", DOWN)
    assert hand.run(60_000) == [], "its attempt is made: from then on it is held like the others"
    assert (world.aside(), world.attempts_of("a")) == ({"h:g.t": 2, "h:s.t": 1}, 1)
    world.pause()
    assert sorted(hand.run(5_000, lambda _: OK)) == ["a", "b"]
    assert world.stream("s.t") == ["sa", "sb"]


def test_by_force_one_goes_that_a_limit_holds_and_no_other(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.change(Change("policy:p", '{"match": "?.t", "rate": 0.01, "burst": 1}'))
    for n in range(6):
        world.add(f"{n}", topic="s.t" if n % 2 else "g.t", at=n)
    world.advance(10)
    hand.run(200)
    assert deliver(world, "4", "5") == ["held"] * 2
    assert deliver(world, "4", "5", force=True) == ["scheduled"] * 2
    hand.run(200)
    assert (hand.sent[-1], world.stream("s.t")[-1]) == ("4", "5")
    assert sum(world.aside().values()) >= 2


def test_one_that_is_parked_goes_past_the_open_circuit_at_once(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    for n in range(9):
        world.add(f"{n}", at=n)
    world.advance(10)
    hand.run(500, lambda _: DOWN)
    assert hand.parked == ["t:general"]
    tried = len(hand.sent)
    id = next(iter(set("012345678") - set(hand.sent[-3:])))
    assert deliver(world, id) == ["scheduled"]
    hand.tick()
    hand.tick()
    assert hand.sent[tried:] == [id]
    hand.answer(id, DOWN)
    hand.run(5_000, lambda _: OK)
    assert sorted(set(hand.sent)) == list("012345678")
    assert world.stats().pool == 0


def test_a_pause_that_comes_behind_it_holds_what_was_let_past_a_circuit_alone(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.add("a", at=1)
    world.advance(10)
    hand.settle()
    hand.answer("a", Result.full("no"))
    hand.settle()
    assert hand.parked == ["t:general"]
    deliver(world, "a")
    world.pause("g.t")
    assert hand.run(60_000) == []
    assert world.aside() == {"h:g.t": 1}


def test_with_an_ordering_key_it_passes_what_has_another_one(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    for n in range(4):
        world.add(f"{n}", at=n, ordering_key="" if n == 0 else f"k{n}")
    world.advance(10)
    hand.settle()
    assert deliver(world, "2", force=True) == ["scheduled"]
    assert hand.run(3_000, lambda _: OK) == ["2"]


def test_with_an_ordering_key_it_does_not_pass_its_elders(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    for n in range(3):
        world.add(f"{n}", at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    assert deliver(world, "2", force=True) == ["scheduled"]
    assert hand.run(3_000) == []
    world.pause()
    assert hand.run(3_000, lambda _: OK) == ["0", "1", "2"]
