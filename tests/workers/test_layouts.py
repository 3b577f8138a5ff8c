"""Nodes hear of layouts that come, and drop those that nothing is left in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from delayq.client.client import Client
from delayq.domain.message import Message
from delayq.store import commands
from delayq.store.commands import Command, Retention, plain
from delayq.store.keys import KEYS, Layout
from tests.support.servers import ServerUnderTest
from workers.node.duties.layouts import LayoutWatch

OLD, NEW = Layout(16), Layout(100, 16)
BOTH = (OLD, NEW)
HOUR = 3_600_000


class House:
    """A watch that looks whenever it is told to."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.client.context()
        self.store = self.client.store
        self.told: list[Sequence[int]] = []
        self.asked: list[str] = []

    def watch(self, *layouts: Layout, window: int = 60_000) -> LayoutWatch:
        return LayoutWatch(self.store, layouts, Retention(window=window), self.told.append)

    def look(self, watch: LayoutWatch) -> tuple[Layout, ...]:
        """What is listed when it has looked."""
        listed = self.store.run(commands.layouts(KEYS))
        watch.take(listed)
        watch.retire()
        return self.store.run(commands.layouts(KEYS))

    def reshard(self, leave_open: int = 0) -> None:
        self.store.run(commands.set_layouts(KEYS, [OLD], BOTH))
        for queue in OLD.numbers[: len(OLD.numbers) - leave_open]:
            self.store.run(commands.close(KEYS.queue(queue)))


@pytest.fixture
def house(valkey: ServerUnderTest) -> Iterator[House]:
    made = House(valkey.url)
    yield made
    made.client.close()


def test_a_layout_that_comes_is_told_once_and_a_redis_that_lost_its_list_takes_no_queue_away(house: House) -> None:
    watch = house.watch(OLD)
    house.look(watch)
    assert house.told == []
    house.store.run(commands.set_layouts(KEYS, [OLD], BOTH))
    for _ in range(3):
        house.look(watch)
    house.store.run(plain("HDEL", KEYS.meta, "layouts", read=int))
    house.look(watch)
    assert house.told == [tuple(range(116))]


def test_an_empty_closed_layout_is_dropped_and_only_that_and_two_nodes_may_do_so(house: House) -> None:
    house.reshard()
    first, second = house.watch(*BOTH), house.watch(*BOTH)
    for _ in range(2):
        assert house.look(first) == house.look(second) == (NEW,)
        assert house.told == [tuple(NEW.numbers)] * 2


def test_a_layout_that_is_not_closed_everywhere_stays(house: House) -> None:
    house.reshard(leave_open=1)
    watch = house.watch(*BOTH)
    assert house.look(watch) == BOTH
    house.store.run(commands.close(KEYS.queue(OLD.numbers[-1])))
    assert house.look(watch) == (NEW,)


def test_a_layout_stays_for_a_message_and_for_the_memory_of_one(house: House) -> None:
    id = house.client.schedule(Message(topic="t", delay_time=HOUR, id="mine")).id
    house.reshard()
    watch = house.watch(*BOTH)
    assert house.look(watch) == BOTH
    assert house.client.cancel(id).result == "cancelled"
    assert house.look(watch) == BOTH
    assert house.look(house.watch(*BOTH, window=-1_000)) == (NEW,), "once the window has passed"


def test_queues_that_are_done_with_are_not_asked_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    one = house.client.schedule(Message(topic="t", delay_time=HOUR, id="in-the-way"))
    house.reshard()
    watch = house.watch(*BOTH)
    house.look(watch)
    asked: list[Command[object]] = []
    run_many = house.store.run_many

    def listening(wanted: Sequence[Command[object]]) -> object:
        some = list(wanted)
        asked.extend(some)
        return run_many(some)

    monkeypatch.setattr(house.store, "run_many", listening)
    house.look(watch)
    assert [command.keys[0] for command in asked if command.script == "is_drained"] == [KEYS.queue(one.queue).state]


def test_of_three_layouts_the_one_in_the_middle_may_go_first(house: House) -> None:
    house.client.schedule(Message(topic="t", delay_time=HOUR))
    house.reshard()
    third = Layout(4, 116)
    house.store.run(commands.set_layouts(KEYS, BOTH, (*BOTH, third)))
    for queue in NEW.numbers:
        house.store.run(commands.close(KEYS.queue(queue)))
    assert house.look(house.watch(*BOTH, third)) == (OLD, third)
