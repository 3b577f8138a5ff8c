from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from api import group_commit
from api.group_commit import GroupCommit
from api.wire.problems import Problem
from delayq import DelayqError, InvalidMessage, LayoutMismatch, Message, Scheduled
from delayq.telemetry.histogram import Histogram


class Store:
    """Takes trips, and lets each arrive when it is told to."""

    def __init__(self) -> None:
        self.trips: list[Sequence[Message]] = []
        self.doors: list[asyncio.Event] = []
        self.error: Exception | None = None

    async def schedule_many(self, messages: Sequence[Message]) -> list[Scheduled | DelayqError]:
        self.trips.append(messages)
        self.doors.append(door := asyncio.Event())
        await door.wait()
        if self.error is not None:
            raise self.error
        return [
            InvalidMessage("topic", "bad") if one.topic == "bad" else Scheduled(id=one.topic, queue=0, due=1)
            for one in messages
        ]

    def arrive(self) -> None:
        for door in self.doors:
            door.set()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def group(store: Store) -> GroupCommit:
    return GroupCommit(store.schedule_many, Histogram((1,)))


def message(topic: str) -> Message:
    return Message(topic=topic, delay_time=1)


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_messages_that_come_while_a_trip_is_under_way_share_the_next(group: GroupCommit, store: Store) -> None:
    first = [group.schedule(message(f"a{i}"), 1) for i in range(3)]
    await settle()
    second = [group.schedule(message(f"b{i}"), 1) for i in range(5)]
    await settle()
    assert [len(trip) for trip in store.trips] == [3]
    assert group.waiting == 5
    store.arrive()
    await settle()
    assert [len(trip) for trip in store.trips] == [3, 5]
    store.arrive()
    outcomes = await asyncio.gather(*first, *second)
    assert [one.id for one in outcomes if isinstance(one, Scheduled)] == [
        "a0",
        "a1",
        "a2",
        "b0",
        "b1",
        "b2",
        "b3",
        "b4",
    ]


async def test_each_message_gets_its_own_outcome(group: GroupCommit, store: Store) -> None:
    outcomes = [group.schedule(message(topic), 1) for topic in ("a", "bad", "c")]
    await settle()
    store.arrive()
    a, bad, c = await asyncio.gather(*outcomes)
    assert isinstance(a, Scheduled)
    assert isinstance(bad, InvalidMessage)
    assert isinstance(c, Scheduled)


async def test_a_second_trip_starts_when_many_wait(group: GroupCommit, store: Store) -> None:
    outcomes = [group.schedule(message("a"), 1)]
    await settle()
    outcomes += [group.schedule(message("b"), 1) for _ in range(group_commit.MANY)]
    await settle()
    outcomes += [group.schedule(message("c"), 1) for _ in range(3 * group_commit.MANY)]
    await settle()
    assert [len(trip) for trip in store.trips] == [1, group_commit.MANY]
    while not all(outcome.done() for outcome in outcomes):
        store.arrive()
        await settle()
    assert [len(trip) for trip in store.trips] == [1, group_commit.MANY, 3 * group_commit.MANY]


async def test_a_trip_takes_no_more_than_it_can_carry(group: GroupCommit, store: Store) -> None:
    outcomes = [group.schedule(message("a"), 1) for _ in range(group_commit.MOST + 1)]
    await settle()
    assert [len(trip) for trip in store.trips] == [group_commit.MOST, 1]
    outcomes += [group.schedule(message("b"), group_commit.MOST_BYTES) for _ in range(3)]
    while not all(outcome.done() for outcome in outcomes):
        store.arrive()
        await settle()
    assert [len(trip) for trip in store.trips] == [group_commit.MOST, 1, 1, 1, 1]


async def test_too_much_is_refused_and_not_kept(
    group: GroupCommit, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING", 5)
    first = group.schedule(message("first"), 1)
    await settle()
    waiting = [group.schedule(message("a"), 1) for _ in range(5)]
    with pytest.raises(Problem) as raised:
        await group.schedule(message("b"), 1)
    assert (raised.value.out.status, raised.value.kind) == (503, "overloaded")
    assert raised.value.headers == ((b"retry-after", b"1"),)
    store.arrive()
    await settle()
    store.arrive()
    await asyncio.gather(first, *waiting)
    assert group.waiting == 0


async def test_what_waits_is_bounded_in_bytes(
    group: GroupCommit, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "WAITING_BYTES", 100)
    outcomes = [group.schedule(message("a"), 60), group.schedule(message("a"), 60)]
    with pytest.raises(Problem):
        await group.schedule(message("a"), 1)
    await settle()
    outcomes.append(group.schedule(message("a"), 60))
    while not all(outcome.done() for outcome in outcomes):
        store.arrive()
        await settle()


async def test_a_trip_that_fails_as_a_whole_fails_each_of_its_messages(group: GroupCommit, store: Store) -> None:
    store.error = LayoutMismatch("another number of queues")
    outcomes = [group.schedule(message("a"), 1) for _ in range(2)]
    await settle()
    store.arrive()
    for outcome in outcomes:
        with pytest.raises(LayoutMismatch):
            await outcome
    store.error = None
    again = group.schedule(message("a"), 1)
    await settle()
    store.arrive()
    assert isinstance(await again, Scheduled)


async def test_a_message_right_behind_a_trip_is_not_left_behind(group: GroupCommit, store: Store) -> None:
    for number in range(20):
        outcome = group.schedule(message(f"m{number}"), 1)
        while not outcome.done():
            store.arrive()
            await asyncio.sleep(0)
    assert len(store.trips) == 20


async def test_a_request_that_was_given_up_does_not_harm_the_others(group: GroupCommit, store: Store) -> None:
    gone, stays = group.schedule(message("a"), 1), group.schedule(message("b"), 1)
    await settle()
    gone.cancel()
    store.arrive()
    assert isinstance(await stays, Scheduled)


async def test_closing_waits_for_what_is_on_its_way_and_what_waits(group: GroupCommit, store: Store) -> None:
    outcomes = [group.schedule(message("a"), 1)]
    await settle()
    outcomes.append(group.schedule(message("b"), 1))
    closing = asyncio.create_task(group.close())
    await settle()
    assert not closing.done()
    store.arrive()
    await settle()
    store.arrive()
    await closing
    assert all(outcome.done() for outcome in outcomes)
