"""The census that an owner takes of its queue, beside its pulls."""

from __future__ import annotations

import pytest

from delayq import Client, Filter, Message
from delayq.base.errors import StoreFull
from delayq.store import commands
from delayq.store.commands import REST, Census, Slice, Tally
from delayq.store.keys import KEYS
from delayq.testing import ManualClock, MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.conftest import Worlds
from workers.queue import census
from workers.queue.census import EVERY, PAUSE, TIMES, CensusTaker
from workers.queue.queue_context import Pace

OWN_KEYS = KEYS.queue(0)


def test_an_owner_counts_its_queue_and_keeps_what_it_has_counted(worlds: Worlds) -> None:
    world = worlds()
    for number in range(300):
        world.add(f"m-{number}", topic=f"g.{number % 3}", at=90_000_000)
    hand = world.take_over(census=True)
    assert world.store.run(commands.census(world.keys)) is None
    began = world.now
    for _ in range(20):
        world.advance(1_000)
        hand.tick()
    found = world.store.run(commands.census(world.keys))
    assert found is not None
    assert began < found.began <= world.now
    assert {topic: states["scheduled"].messages for topic, states in found.topics.items()} == {
        f"g.{number}": 100 for number in range(3)
    }
    other = world.take_over(node=2)  # its census is another one's now
    for _ in range(60):
        world.advance(1_000)
        hand.tick()
        other.tick()
    assert world.store.run(commands.census(world.keys)) == found


def test_a_worker_takes_the_census_of_its_queues(valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "EVERY", 10)
    monkeypatch.setattr("delayq.client.looking.counting.LIVE", -1)  # a client would count so few messages by itself
    settings = settings_for(valkey.url, MemoryTarget())
    with Client(settings=settings) as client:
        client.schedule_many([Message(topic=f"t{number % 2}", delay_time=60_000) for number in range(40)])
        assert client.count(Filter(topic="t0")).messages is None
        with RunningNode(settings):
            eventually(lambda: client.count(Filter(topic="t0")).messages == 20, "it is counted")


@pytest.fixture
def made(clock: ManualClock) -> CensusTaker:
    made = CensusTaker(OWN_KEYS, "1", clock, Pace(clock))
    assert made.ask() is None  # it has only begun
    clock.advance(EVERY)
    return made


def script(made: CensusTaker) -> tuple[str, object]:
    command = made.ask()
    assert command is not None
    return command.script, command.args[1]


def test_what_was_not_answered_is_asked_again_later_and_a_pause_follows(made: CensusTaker, clock: ManualClock) -> None:
    for answer in (StoreFull("no memory"), None):
        assert script(made) == ("census_slice", "0")
        assert made.ask() is None
        clock.advance(EVERY)
        if answer is not None:
            made.take(answer)
    made.take(Slice(7, "9", 1, [("t", "due", 0, 1, 10, 1, 0)]))
    assert script(made) == ("census_slice", "9")
    made.take(Slice(8, "0", 1, [("t", "due", 0, 1, 10, 1, 0)]))
    clock.advance(EVERY)
    kept = made.ask()
    assert kept is not None
    assert kept.args == commands.keep_census(OWN_KEYS, "1", Census(7, {"t": {"due": Tally(2, 20, [2], 2)}})).args
    made.take(True)
    clock.advance(PAUSE[0] - 1)
    assert made.ask() is None
    clock.advance(1)
    assert script(made) == ("census_slice", "0")


def test_an_empty_queue_is_kept_once(made: CensusTaker, clock: ManualClock) -> None:
    asked = []
    for _ in range(3):
        if (command := made.ask()) is not None:
            asked.append(command.script)
            made.take(True if command.script == "keep_census" else Slice(7, "0", 0, []))
            clock.advance(EVERY)
        clock.advance(PAUSE[1])
    assert asked == ["census_slice", "keep_census", "census_slice"]


@pytest.mark.parametrize(("slices", "pause"), [(2, PAUSE[0]), (10, TIMES * 10 * EVERY), (1_000, PAUSE[1])])
def test_the_longer_a_look_took_the_longer_is_the_pause_behind_it(
    made: CensusTaker, clock: ManualClock, slices: int, pause: int
) -> None:
    for left in reversed(range(slices)):
        assert script(made)[0] == "census_slice"
        made.take(Slice(7, str(left), 1, [("t", "due", 0, 1, 10, 1, 0)]))
        clock.advance(EVERY)
    command = made.ask()
    assert command is not None
    assert command.script == "keep_census"
    made.take(True)
    clock.advance(pause - 1)
    assert made.ask() is None
    clock.advance(1)
    assert script(made) == ("census_slice", "0")


def test_topics_beyond_the_most_are_counted_together(
    made: CensusTaker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "MOST_TOPICS", 2)
    made.take(Slice(7, "0", 4, [(topic, "due", 0, 1, 10, 1, 0) for topic in "abca"] + [("d", "dead", 0, 1, 10, 1, 0)]))
    kept = Census(
        7,
        {
            "a": {"due": Tally(2, 20, [2], 2)},
            "b": {"due": Tally(1, 10, [1], 1)},
            REST: {"due": Tally(1, 10, [1], 1), "dead": Tally(1, 10, [1], 1)},
        },
    )
    command = made.ask()
    assert command is not None
    assert command.args == commands.keep_census(OWN_KEYS, "1", kept).args


def test_large_messages_are_looked_at_a_few_at_a_time(made: CensusTaker, clock: ManualClock) -> None:
    for size, look in ((100, 32), (100, 128), (100, 200), (100_000, 8), (10_000, 26)):
        made.take(Slice(7, "9", 10, [("t", "due", 0, 10, 10 * size, 0, 0)]))
        command = made.ask()
        assert command is not None
        assert command.args[2] == look
        clock.advance(EVERY)


def test_all_queues_of_a_node_share_its_pace(clock: ManualClock) -> None:
    pace = Pace(clock, 10)
    assert [pace.take() for _ in range(12)] == [True] * 10 + [False] * 2
    clock.advance(250)
    assert [pace.take() for _ in range(3)] == [True, True, False]
