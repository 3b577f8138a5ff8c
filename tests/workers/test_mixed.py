"""One queue, many ways: local streams, general targets, topics without a route, and routes that change."""

from __future__ import annotations

import pytest

from delayq.domain.routes import Route
from delayq.store import commands
from delayq.targets import OK, Result
from tests.workers.conftest import Worlds
from tests.workers.one_queue import GENERAL, OTHER, STREAMS, OneQueue

AWAY = Result.unavailable("away")


def test_messages_of_one_queue_go_each_their_own_way(world: OneQueue) -> None:
    for i in range(60):
        world.add(f"m{i:02}", topic=("s.t", "g.t", "o.t", "nowhere")[i % 4], at=i // 2)
    world.advance(60)
    hand = world.take_over()
    hand.run(100, lambda held: OK)
    assert world.stream("s.t") == [f"m{i:02}" for i in range(0, 60, 4)]
    assert sorted(hand.sent) == sorted(f"m{i:02}" for i in range(60) if i % 4 in (1, 2))
    assert hand.parked == ["t:*"]
    assert world.stats().parked == 15
    assert world.state_of("m03") == "parked"


def test_topics_that_get_a_route_later_are_delivered_by_the_next_owner_however_many_there_are_without_one(
    worlds: Worlds,
) -> None:
    world = worlds(table=[STREAMS, GENERAL])
    world.add_many((f"m{i:04}" for i in range(1_100)), topic="q.t")
    world.add("behind", topic="o.t", at=1)
    world.advance(1)
    world.take_over().run(50)
    assert world.stats().parked == 1_101
    world.routes = type(world.routes)([STREAMS, OTHER])
    second = world.take_over()
    assert second.run(1_000, lambda held: OK) == ["behind"]
    assert second.run(3_000, lambda held: OK) == []  # and the others do not keep it busy
    assert (world.stats().parked, world.state_of("m0000")) == (1_100, "parked")
    world.routes = type(world.routes)([STREAMS, Route(name="all")])
    world.take_over().run(3_000)
    assert len(world.stream("q.t")) == 1_100


@pytest.mark.parametrize("name", ["renamed", "general"])
@pytest.mark.parametrize("target", ["manual:", "redis+stream:"], ids=["general", "streams"])
def test_what_was_parked_for_a_route_is_routed_anew_by_the_next_owner(worlds: Worlds, name: str, target: str) -> None:
    world = worlds()
    ids = [f"m{i:02}" for i in range(30)]
    world.add_many(ids)
    first = world.take_over()
    first.settle()
    first.answer_all(AWAY)
    first.run(300, lambda held: AWAY)
    assert world.stats().parked == 30
    world.routes = type(world.routes)([STREAMS, Route(name=name, match="g.*", target=target)])
    second = world.take_over()
    sent = second.run(5_000, lambda held: OK)
    assert sorted(sent or world.stream("g.t")) == ids
    assert second.parked == []
    assert world.stats().parked_sets == ()


def test_more_topics_than_a_pull_is_told_of_all_arrive(world: OneQueue) -> None:
    for i in range(600):
        world.add(f"m{i:03}", topic=f"{'sg'[i % 2]}.{i}", at=i)
        world.add(f"n{i:03}", topic=f"s.many.{i % 300}", at=i)
    world.advance(600)
    hand = world.take_over()
    hand.run(100, lambda held: OK)
    assert sorted(hand.sent) == [f"m{i:03}" for i in range(1, 600, 2)]
    assert world.records() == {}
    for i in range(300):
        assert world.stream(f"s.many.{i}") == [f"n{i:03}", f"n{i + 300:03}"]


@pytest.mark.parametrize("key", ["", "k"], ids=["without-key", "with-key"])
def test_a_stream_whose_key_is_something_else_gets_its_messages_buried_with_that_reason(
    world: OneQueue, key: str
) -> None:
    world.store.run(commands.plain("SET", "s.taken", "x", read=lambda _: None))
    hand = world.take_over()
    for i in range(5):
        world.add(f"bad{i}", topic="s.taken", ordering_key=key)
        world.add(f"good{i}", topic="s.t", ordering_key=key)
    hand.settle()
    assert world.stream("s.t") == [f"good{i}" for i in range(5)]
    assert {id: one.reason for id, one in world.dead().items()} == {
        f"bad{i}": "the key s.taken is not a stream" for i in range(5)
    }
    world.store.run(commands.plain("DEL", "s.taken", read=lambda _: None))
    assert world.redrive("bad0") == "scheduled"
    hand.settle()
    assert world.stream("s.taken") == ["bad0"]


def test_streams_are_trimmed_only_where_the_route_says_so_and_named_by_its_template(worlds: Worlds) -> None:
    short = Route(name="short", match="s.short", max_length=10)
    world = worlds(table=[short, Route(name="streams", match="s.*", stream="due:{topic}")])
    for i in range(600):
        world.add(f"a{i}", topic="s.short")
        world.add(f"b{i}", topic="s.t")
    world.take_over().settle()
    assert len(world.stream("due:s.t")) == 600
    assert 10 <= len(world.stream("s.short")) < 300  # Redis trims by whole nodes of about a hundred
