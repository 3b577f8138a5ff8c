"""Messages of a paused topic are set aside and come back; their followers under an ordering key wait, and other topics do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.domain.routes import Route
from delayq.store import commands
from delayq.targets import OK, Result
from reliability.mutants.rules import Mutant, plant
from tests.workers.one_queue import BOUNDS, GENERAL, OTHER, START, STREAMS, Hand, OneQueue
from workers.queue.releasing import LOOKED_AT_ONCE

Worlds = Callable[..., OneQueue]
DOWN = Result.unavailable("down")
#: Messages that a target has room for.
SLICE = BOUNDS.window // 3
ONE_STREAM = (Route(name="one", match="s.*", stream="all"), GENERAL, OTHER)


def test_what_is_paused_is_set_aside_and_goes_in_order_once_it_is_resumed(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.*")
    for n in range(6):
        world.add(f"{n}", topic="g.t" if n % 2 else "o.t", at=n)
    world.advance(10)
    hand.settle()
    assert hand.sent == ["0", "2", "4"]
    assert world.aside() == {"h:g.t": 3}
    world.pause()
    hand.settle()
    assert hand.sent[3:] == ["1", "3", "5"]
    assert world.aside() == {}


def some_come_back(world: OneQueue) -> Hand:
    """An owner that has brought back the first of five slices that were paused."""
    hand = world.take_over()
    world.pause("g.t")
    for n in range(5 * SLICE):
        world.add(f"{n:03}", at=n // 5)
    world.advance(100)
    hand.settle()
    assert not hand.job.in_backlog
    world.pause()
    while not hand.sent:
        hand.tick()
    return hand


def test_what_comes_back_takes_its_turn_with_the_backlogs_of_other_queues(worlds: Worlds) -> None:
    world = worlds()
    hand = some_come_back(world)
    left = world.aside()
    assert (hand.job.in_backlog, left) == (True, {"h:g.t": 5 * SLICE - len(hand.sending)})
    hand.answer_all()
    assert hand.tick(backlog=False) == 0, "it waits for its turn"
    assert (hand.job.in_backlog, hand.sending, world.aside()) == (True, [], left)
    hand.tick()
    assert world.aside()["h:g.t"] < left["h:g.t"]
    hand.run(3_000, lambda _: OK)
    assert hand.sent == [f"{n:03}" for n in range(5 * SLICE)]
    assert not hand.job.in_backlog


def test_while_it_waits_for_its_turn_what_is_resumed_may_be_paused_again(worlds: Worlds) -> None:
    world = worlds()
    hand = some_come_back(world)
    hand.answer_all()
    world.pause("g.t")
    hand.tick(backlog=False)
    hand.run(3_000, lambda _: OK)
    count = len(hand.sent)
    assert (hand.sent, world.aside()) == ([f"{n:03}" for n in range(count)], {"h:g.t": 5 * SLICE - count})
    assert count < SLICE
    assert not hand.job.in_backlog


def test_what_waits_when_it_is_paused_is_not_sent_and_what_is_being_sent_is_told(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.add("k1", at=0, ordering_key="k")
    world.add("k2", at=1, ordering_key="k")
    for n in range(BOUNDS.window):
        world.add(f"{n:03}", at=1)
    world.advance(1)
    hand.tick()
    hand.tick()
    room = len(hand.sending)
    assert 1 < room < BOUNDS.window
    world.pause("g.t")
    hand.settle()
    assert (len(hand.sending), hand.job.sending_paused) == (room, {"g.t": room})
    hand.answer_all(DOWN)
    assert hand.run(5_000) == []
    assert (hand.job.sending_paused, sum(world.aside().values())) == ({}, BOUNDS.window + 2)
    world.pause("other")
    sent = hand.run(5_000, lambda _: OK)
    assert sorted(sent) == sorted(["k1", "k2", *(f"{n:03}" for n in range(BOUNDS.window))])
    assert sent.index("k1") < sent.index("k2")


@pytest.mark.parametrize("topics", [("g.p", "g.t"), ("s.p", "s.t")], ids=["one target", "one stream"])
def test_two_topics_that_share_a_key_do_not_hold_each_other_up(worlds: Worlds, topics: tuple[str, str]) -> None:
    world = worlds(table=ONE_STREAM)
    hand = world.take_over()
    paused, other = topics
    world.pause(paused)
    for n in range(1, 9):
        world.add(f"{n}", topic=paused if n % 2 else other, at=n, ordering_key="k")
    world.advance(10)

    def sent() -> list[str]:
        return [*world.stream("all"), *hand.sent]

    hand.run(3_000, lambda _: OK)
    assert sent() == ["2", "4", "6", "8"]
    world.pause()
    hand.run(3_000, lambda _: OK)
    assert sent() == ["2", "4", "6", "8", "1", "3", "5", "7"]


@pytest.mark.parametrize("topic", ["g.p", "s.p"], ids=["target", "stream"])
@pytest.mark.parametrize("then", ["", "reset", "another owner"])
def test_a_message_that_falls_due_while_an_earlier_one_of_its_key_comes_back_stays_behind_it(
    worlds: Worlds, topic: str, then: str
) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause(topic)
    for n in range(48):
        world.add(f"{n:02}", topic=topic, at=n, ordering_key=f"k{n % 2}")
    world.advance(100)
    hand.settle()
    world.pause()
    if then == "reset":
        hand.job.failed()
    elif then:
        policies = hand.policies.current
        hand = world.take_over(node=2)
        hand.policies.current = policies
    hand.tick()
    world.add("late", topic=topic, at=100, ordering_key="k1")
    hand.run(5_000, lambda _: OK)
    sent = [*world.stream("s.p"), *hand.sent]
    for key in (0, 1):
        own = [id for id in sent if (int(id) % 2 if id != "late" else 1) == key]
        assert own == sorted(own), "letters come behind digits"
    assert world.records() == {}


@pytest.mark.parametrize("expires", [None, 1_000])
def test_what_expires_while_it_is_held_is_buried_when_it_would_go(worlds: Worlds, expires: int | None) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("*")
    world.add("a", at=1, expire_after=expires)
    world.add("s", topic="s.t", at=1, expire_after=expires)
    hand.run(2_000)
    assert world.aside() == {"h:g.t": 1, "h:s.t": 1}
    world.pause()
    hand.run(2_000)
    assert sorted(world.dead()) == (["a", "s"] if expires else [])
    assert (hand.sent, world.stream("s.t")) == (([], []) if expires else (["a"], ["s"]))


def test_what_is_resumed_while_its_target_is_down_is_parked_for_it(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.p")
    for n in range(40):
        world.add(f"{n:02}", topic="g.p", at=1)
    world.add("x", at=2)
    hand.run(10)
    hand.run(6_000, lambda _: DOWN)
    world.pause()
    hand.run(3_000, lambda _: DOWN)
    assert set(world.aside()) <= {"t:general"}
    hand.run(60_000, lambda _: OK)
    assert world.stats().counters["delivered"] == 41


def test_streams_here_take_nothing_of_a_paused_topic_and_keys_keep_their_order_when_it_is_resumed(
    worlds: Worlds,
) -> None:
    world = worlds()
    hand = world.take_over()
    world.add("first", topic="s.p", at=0)
    hand.settle()
    world.pause("s.p")
    for n in range(600):
        world.add(f"{n:03}", topic="s.p" if n % 3 else "s.t", at=1, ordering_key="k" if n % 2 else "")
    hand.run(100)
    assert world.stream("s.p") == ["first"]
    assert len(world.stream("s.t")) == 200
    world.pause()
    world.add("late", topic="s.p", at=101, ordering_key="k")
    world.add("free", topic="s.p", at=101)
    hand.run(200)
    found = world.stream("s.p")
    assert len(found) == 403
    keyed = [id for id in found[1:] if id == "late" or (id != "free" and int(id) % 2)]
    assert keyed == [*sorted(keyed[:-1]), "late"]


def test_what_comes_back_for_a_stream_keeps_no_other_topic_waiting(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("s.p")
    for n in range(1_000):
        world.add(f"{n:03}", topic="s.p", at=n % 500)
    hand.run(500)
    world.pause()
    world.add("other", topic="s.t", at=500)
    while not world.stream("s.t"):
        hand.tick()
    assert world.aside()["h:s.p"] >= 400


def test_what_was_released_unheard_comes_back_from_the_head_of_the_queue_in_order(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    for n in range(9):
        world.add(f"{n}", at=n, ordering_key="k")
    world.advance(10)
    hand.settle()
    world.pause()
    name = hand.job._context.incarnation.name
    known, version, now = commands.KnownTopics((), ("g.t", "", "")), hand.policies.current.version, world.now
    world.store.run(commands.release(world.keys, name, {"g.t": 3}, known=known, upto=None, version=version, now=now))
    assert world.aside() == {"h:g.t": 6}
    hand.job.failed()
    assert hand.run(5_000, lambda _: OK) == [f"{n}" for n in range(9)]


@pytest.mark.parametrize("rate", [None, 1_000], ids=["no limit", "a rate for each"])
def test_more_topics_than_a_tick_looks_at_come_back(worlds: Worlds, rate: int | None) -> None:
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    if rate is not None:
        world.change(commands.Change("policy:p", f'{{"match": "*", "rate": {rate}}}'))
    world.pause("u.*")
    topics = [f"u.{n}" for n in range(LOOKED_AT_ONCE + 50)]
    for topic in topics:
        world.add(f"of-{topic}", topic=topic)
    hand.settle()
    assert world.stats().parked == len(topics)
    world.pause()
    for _ in range(20):
        hand.limits.tick()
        hand.settle()
        world.advance(10)
    assert world.records() == {}
    assert all(world.stream(topic) == [f"of-{topic}"] for topic in topics)


@pytest.mark.parametrize("topic", ["s.p", "g.p"])
def test_a_set_that_is_there_again_in_a_redis_that_went_back_is_found_within_a_second(
    worlds: Worlds, topic: str
) -> None:
    world = worlds()
    hand = world.take_over()
    world.pause(topic)
    world.add_many((f"{n}" for n in range(3)), topic=topic)
    hand.settle()
    world.pause()

    def plain(*words: bytes | str | int) -> Any:
        return world.store.run(commands.plain(*words, read=lambda reply: reply))

    kept = {name: plain("DUMP", name) for name in plain("KEYS", "delayq:{0}:*")}
    hand.run(1_500, lambda _: OK)
    assert world.records() == {}
    for name in plain("KEYS", "delayq:{0}:*"):
        plain("DEL", name)
    for name, value in kept.items():
        plain("RESTORE", name, 0, value)
    assert world.aside() == {f"h:{topic}": 3}
    hand.run(1_100, lambda _: OK)
    assert (world.records(), world.aside()) == ({}, {})


@pytest.mark.parametrize("rule", [True, False])
def test_what_comes_back_is_never_cancelled_for_certain_also_where_the_watermark_came_down(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    if not rule:
        change = ("release", "if latest_back > (tonumber", "if latest_back < -(tonumber")
        plant(Mutant("a release that leaves the watermark", (change,)), monkeypatch)
    world = worlds()
    hand = world.take_over()
    world.pause("g.t")
    world.add("a", at=10)
    world.advance(20)
    hand.settle()
    world.store.run(commands.plain("HSET", world.keys.state, "watermark", START, read=int))  # the clocks were ahead
    world.pause()
    assert hand.settle() == ["a"]
    world.advance(-15)  # a clock is set back
    assert world.cancel("a") == ("inFlight" if rule else "cancelled")


def test_probes_find_their_way_past_what_is_paused(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    for n in range(40):
        world.add(f"{n}", topic="g.p", at=1)
    world.add("x", at=2)
    hand.run(10)
    hand.run(500, lambda _: DOWN)
    assert world.aside() == {"t:general": 41}
    world.pause("g.p")
    assert hand.run(5_000, lambda _: OK) == ["x"]


def test_a_pause_that_was_read_in_a_tick_that_failed_counts_in_the_next(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds()
    hand = world.take_over()
    world.add("1", topic="s.p", at=0)
    hand.settle()
    world.pause("s.p")
    with monkeypatch.context() as patch:
        patch.setattr(hand.job.in_flight, "observe_policies", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hand.tick()
    assert hand.job.version == ""
    hand.job.failed()
    world.add("2", topic="s.p", at=1)
    hand.run(1_000)
    assert (world.stream("s.p"), world.aside()) == (["1"], {"h:s.p": 1})


def test_a_pause_over_everything_and_topics_without_a_route(worlds: Worlds) -> None:
    world = worlds(table=(STREAMS,))
    hand = world.take_over()
    world.pause("*")
    world.add("a", topic="nowhere.t", at=1)
    world.add("b", topic="s.t", at=1)
    hand.run(100)
    assert world.aside() == {"h:nowhere.t": 1, "h:s.t": 1}
    world.pause()
    hand.run(100)
    assert (world.stream("s.t"), world.aside()) == (["b"], {"t:*": 1})
