"""What somebody has delivered now goes once, past a circuit that is open, and by force past a pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from delayq import Client, Message
from delayq.store import commands
from delayq.store.commands import Change, Released
from delayq.targets import OK, Result
from delayq.testing import MemoryTarget
from reliability.mutants.rules import Mutant, plant
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.one_queue import OneQueue
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets

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
    for first in (0, 6):  # what comes before the node knows that the limit is short may wait in its memory
        for n in range(first, first + 6):
            world.add(f"{n}", topic="s.t" if n % 2 else "g.t", at=150 * first + n)
        world.advance(20)
        for _ in range(10):
            hand.limits.tick()
            hand.run(100)
    assert deliver(world, "10", "11") == ["held"] * 2
    assert deliver(world, "10", "11", force=True) == ["scheduled"] * 2
    hand.run(200)
    assert (hand.sent, world.stream("s.t")) == (["0", "10"], ["1", "11"])


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


def test_with_an_ordering_key_one_that_is_parked_is_not_overtaken_though_its_wake_is_lost(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    hand = world.take_over()
    for n in range(4):
        world.add(f"{n}", at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    hand.answer("0", Result.full("no"))
    hand.settle()
    assert world.stats().parked == 4
    monkeypatch.setattr(hand.job, "wake", lambda due: None)
    deliver(world, "0")
    hand.senders["general"].circuit.sent(True)  # by another queue: it is closed
    assert hand.run(3_000, lambda _: OK) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("then", ["", "reset", "another owner"])
def test_with_an_ordering_key_the_first_goes_and_its_followers_stay(worlds: Worlds, then: str) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    for n in range(6):
        world.add(f"{n}", at=n, ordering_key=f"k{n % 2}")
    world.advance(10)
    hand.settle()
    assert deliver(world, "1", force=True) == ["scheduled"]
    if then == "reset":
        hand.job.failed()
    elif then:
        policies = hand.policies.current
        hand = world.take_over(node=2)
        hand.policies.current = policies
    assert hand.run(3_000, lambda _: OK) == ["1"]
    assert world.aside() == {"h:g.t": 5}
    assert deliver(world, "0", force=True) == ["scheduled"]
    assert hand.run(3_000, lambda _: OK) == ["0"]
    assert deliver(world, "3", force=True) == ["scheduled"]
    assert hand.run(3_000, lambda _: OK) == ["3"]
    world.pause()
    sent = hand.run(3_000, lambda _: OK)
    assert (sent.index("2") < sent.index("4"), sorted(sent)) == (True, ["2", "4", "5"])


@pytest.mark.parametrize("topic", ["g.t", "s.t"], ids=["target", "stream"])
def test_by_force_it_passes_what_is_held_of_its_ordering_key_and_nothing_else_does(worlds: Worlds, topic: str) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause(topic)
    for n in range(4):
        world.add(f"{n}", topic=topic, at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    assert deliver(world, "2", force=True) == ["scheduled"]
    hand.run(3_000, lambda _: OK)
    assert (hand.sent + world.stream("s.t"), world.aside()) == (["2"], {f"h:{topic}": 3})
    world.pause()
    hand.run(3_000, lambda _: OK)
    assert hand.sent + world.stream("s.t") == ["2", "0", "1", "3"]


def test_with_an_ordering_key_one_that_failed_by_force_is_held_at_its_place(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    for n in range(2):
        world.add(f"{n}", at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    deliver(world, "0", force=True)
    assert hand.run(3_000, lambda _: DOWN) == ["0"]
    world.pause()
    assert hand.run(3_000, lambda _: OK) == ["0", "1"]


def test_with_an_ordering_key_the_first_that_is_parked_goes_as_a_probe(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    for n in range(3):
        world.add(f"{n}", at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    hand.answer("0", Result.full("no"))
    hand.settle()
    assert world.aside() == {"t:general": 3}
    tried = len(hand.sent)
    assert deliver(world, "0") == ["scheduled"]
    hand.tick()
    hand.tick()
    assert hand.sent[tried:] == ["0"]
    hand.answer("0", DOWN)
    assert hand.run(60_000, lambda _: OK)[-3:] == ["0", "1", "2"]


def state(client: Client, id: str) -> str | None:
    found = client.get(id)
    return found.state if found is not None else None


@pytest.mark.parametrize("topic", ["m.t", "lone.a"], ids=["target", "stream"])
def test_by_force_the_first_of_an_ordering_key_is_delivered_and_its_follower_stays(
    valkey: ServerUnderTest, topic: str
) -> None:
    target = MemoryTarget()
    settings = settings_for(valkey.url, target, redis_timeout=int(PATIENCE * 1000))
    with RunningNode(settings), Client(settings=settings) as client:
        client.pause("*")
        first, second = (client.schedule(Message(topic=topic, id=id, delay_time=0, ordering_key="k")).id for id in "ab")
        eventually(lambda: client.topic(topic).held == 2, "both are held")
        assert client.deliver_now(first, force=True).result == "scheduled"
        eventually(lambda: state(client, first) == "delivered", "it goes")
        assert state(client, second) == "held"
        client.resume("*")
        eventually(lambda: state(client, second) == "delivered", "so does its follower")


# -- rules taken out -----------------------------------------------------------------------------------------------------

KEEPS_ITS_PLACE = Mutant("due now", (("deliver_now", "at = stays and was or now", "at = now"),))


_accept_released = InFlight.accept_released


def _pass_what_was_dropped(self: InFlight, released: Released, now: int) -> None:
    _accept_released(self, msgspec.structs.replace(released, dropped=None), now)


@pytest.mark.parametrize("rule", ["due now", "its own ticket"])
def test_these_tests_show_what_breaks_without_a_rule(
    rule: str, worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule == "due now":
        plant(KEEPS_ITS_PLACE, monkeypatch)
    else:
        monkeypatch.setattr(ParkedSets, "holds_up", lambda self, name, place: name in self and place > self.head(name))
    with pytest.raises(AssertionError):
        test_with_an_ordering_key_the_first_that_is_parked_goes_as_a_probe(worlds)


def test_a_key_is_overtaken_if_a_release_passes_a_ticket_whose_message_stands_elsewhere(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InFlight, "accept_released", _pass_what_was_dropped)
    with pytest.raises(AssertionError):
        test_with_an_ordering_key_one_that_is_parked_is_not_overtaken_though_its_wake_is_lost(worlds, monkeypatch)
