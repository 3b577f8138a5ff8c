"""Calls that are made at the same time: which of them go together, and what each of them is told. No server runs here."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest

from delayq.base.errors import Conflict, LayoutMismatch, NotDone
from delayq.client import async_client
from delayq.client.async_client import GroupCommit
from delayq.client.scheduling.encoding import Encoded
from delayq.client.scheduling.schedule import Outcome, Scheduled


class Redis:
    """Takes trips, and lets each arrive when it is told to."""

    def __init__(self) -> None:
        self.trips: list[list[str]] = []
        self.doors: list[asyncio.Event] = []
        self.error: Exception | None = None

    async def send(self, messages: Sequence[Encoded]) -> list[Outcome]:
        self.trips.append([str(one.id) for one in messages])
        self.doors.append(door := asyncio.Event())
        await door.wait()
        if self.error is not None:
            raise self.error
        return [Conflict("taken") if one.id == "taken" else Scheduled(str(one.id), 0, 1) for one in messages]

    def arrive(self) -> None:
        for door in self.doors:
            door.set()

    @property
    def sizes(self) -> list[int]:
        return [len(trip) for trip in self.trips]


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def group(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> GroupCommit:
    monkeypatch.setattr(async_client, "LONG", 3_600)
    return GroupCommit(redis.send, 3_600)


def call(group: GroupCommit, id: str, size: int = 1) -> asyncio.Task[Outcome]:
    return asyncio.create_task(group.add(Encoded("R", id, b"x" * size, 1)))


def calls(group: GroupCommit, name: str, count: int) -> list[asyncio.Task[Outcome]]:
    return [call(group, f"{name}{number}") for number in range(count)]


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def finish(redis: Redis, made: Sequence[asyncio.Task[Outcome]]) -> None:
    while not all(one.done() for one in made):
        redis.arrive()
        await settle()


async def test_calls_that_come_while_a_trip_is_under_way_share_the_next(group: GroupCommit, redis: Redis) -> None:
    made = calls(group, "a", 3)
    await settle()
    made += [*calls(group, "b", 2), call(group, "taken"), *calls(group, "c", 2)]
    await settle()
    assert redis.trips == [["a0", "a1", "a2"]]
    assert group.waiting == 5
    redis.arrive()
    await settle()
    assert redis.trips[1:] == [["b0", "b1", "taken", "c0", "c1"]]
    redis.arrive()
    outcomes = await asyncio.gather(*made)
    assert [one.id for one in outcomes if isinstance(one, Scheduled | Conflict)] == redis.trips[0] + redis.trips[1]
    assert [type(one) for one in outcomes] == [Scheduled] * 5 + [Conflict] + [Scheduled] * 2


async def test_a_call_that_is_alone_goes_at_once_and_by_itself(group: GroupCommit, redis: Redis) -> None:
    for number in range(3):
        made = call(group, str(number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert redis.trips[-1] == [str(number)]
        assert len(asyncio.all_tasks()) == 2  # the caller's and this one
        redis.arrive()
        await made


async def test_another_trip_starts_when_many_wait_or_one_has_waited_long(
    group: GroupCommit, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls(group, "a", 1)
    await settle()
    made += calls(group, "b", async_client.MANY)
    await settle()
    made += calls(group, "c", 3 * async_client.MANY)
    await settle()
    assert redis.sizes == [1, async_client.MANY]
    await finish(redis, made)
    assert redis.sizes == [1, async_client.MANY, 3 * async_client.MANY]
    redis.trips.clear()
    monkeypatch.setattr(async_client, "LONG", 0)
    group, made = GroupCommit(redis.send, 3_600), []
    for name, count in (("a", 1), ("b", 2), ("c", 2)):
        made += calls(group, name, count)
        await settle()
    assert redis.trips == [["a0"], ["b0", "b1"]]  # and no third: so many are under way at most
    await finish(redis, made)


async def test_a_trip_takes_no_more_than_it_can_carry(group: GroupCommit, redis: Redis) -> None:
    made = calls(group, "a", async_client.MOST + 1)
    await finish(redis, made)
    assert sorted(redis.sizes) == [1, async_client.MOST]
    redis.trips.clear()
    made = [call(group, "b", async_client.MOST_BYTES) for _ in range(3)]
    await finish(redis, made)
    assert redis.sizes == [1, 1, 1]


async def test_too_many_or_too_large_calls_are_refused_and_not_kept(
    group: GroupCommit, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "WAITING", 5)
    made = calls(group, "a", 1)
    await settle()
    made += calls(group, "b", 5)
    await settle()
    with pytest.raises(NotDone):
        await call(group, "c")
    await finish(redis, made)
    assert group.waiting == 0
    monkeypatch.setattr(async_client, "WAITING_BYTES", 100)
    made = [call(group, "e"), call(group, "f", 60), call(group, "g", 60)]
    await asyncio.sleep(0)
    with pytest.raises(NotDone):
        await group.add(Encoded("R", "c", b"", 1))
    await finish(redis, made)
    await finish(redis, [call(group, "h", 60)])
    assert redis.trips[-1] == ["h"]
    assert not any("c" in trip for trip in redis.trips)


async def test_a_call_that_has_waited_too_long_is_not_sent_any_more(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    monkeypatch.setattr(async_client, "LONG", 3_600)
    group = GroupCommit(redis.send, 2)
    made = calls(group, "first", 1)
    await settle()
    made += calls(group, "early", 2)
    await settle()
    now = 1.5
    made += calls(group, "late", 1)
    await settle()
    now = 2.1
    await finish(redis, made)
    assert redis.trips == [["first0"], ["late0"]]
    assert [type(one.result()) for one in made] == [Scheduled, NotDone, NotDone, Scheduled]


async def test_a_trip_that_fails_as_a_whole_fails_each_of_its_calls(group: GroupCommit, redis: Redis) -> None:
    redis.error = LayoutMismatch("another number of queues")
    made = calls(group, "a", 2)
    await settle()
    redis.arrive()
    assert [type(one) for one in await asyncio.gather(*made, return_exceptions=True)] == [LayoutMismatch] * 2
    redis.error = None
    again = call(group, "again")
    await finish(redis, [again])
    assert isinstance(again.result(), Scheduled)


async def test_a_call_right_behind_a_trip_is_not_left_behind(group: GroupCommit, redis: Redis) -> None:
    for number in range(20):
        for made in (call(group, f"m{number}"), call(group, f"n{number}")):
            while not made.done():
                redis.arrive()
                await asyncio.sleep(0)
    assert sum(redis.sizes) == 40


@pytest.mark.parametrize("alone", [True, False])
async def test_a_caller_that_gives_up_does_not_harm_the_others_and_takes_its_message_back_in_time(
    group: GroupCommit, redis: Redis, alone: bool
) -> None:
    gone = call(group, "gone")
    if alone:
        await settle()  # it is on its way by itself
    stays = call(group, "stays")
    await settle()
    gone.cancel()
    await settle()
    redis.arrive()
    await finish(redis, [stays])
    assert isinstance(stays.result(), Scheduled)
    assert gone.cancelled()
    # In time it takes its message back: while others are on their way, and while the first one waits for those of this turn.
    redis.trips.clear()
    first = call(group, "first")
    await settle()
    gone, stays = call(group, "gone"), call(group, "stays")
    await settle()
    gone.cancel()
    await finish(redis, [first, stays])
    made = calls(group, "x", 2)
    await asyncio.sleep(0)
    made[0].cancel()
    await finish(redis, made)
    assert redis.trips == [["first"], ["stays"], ["x1"]]


async def test_closing_waits_for_what_is_on_its_way_and_what_waits(group: GroupCommit, redis: Redis) -> None:
    for waiting in (0, 2):
        made = calls(group, "a", 1)
        await settle()
        made += calls(group, "b", waiting)
        await settle()
        closing = asyncio.create_task(group.close())
        await settle()
        assert not closing.done()
        await finish(redis, made)
        await closing


@pytest.mark.filterwarnings("error")
def test_a_loop_that_ends_leaves_nothing_behind(redis: Redis) -> None:
    group = GroupCommit(redis.send, 3_600)

    async def stop_in_the_middle() -> None:
        calls(group, "a", 2)
        await settle()
        calls(group, "b", 2)
        await settle()

    async def again() -> None:
        redis.trips.clear()
        made = call(group, "c")
        await finish(redis, [made])

    asyncio.run(stop_in_the_middle())
    gc.collect()
    assert group.waiting == 0
    asyncio.run(again())
    assert redis.trips == [["c"]]


def test_what_is_under_way_takes_nothing_along_from_another_loop(group: GroupCommit, redis: Redis) -> None:
    async def begin() -> asyncio.Task[Outcome]:
        made = call(group, "first")
        await settle()
        return made

    async def end(made: asyncio.Task[Outcome]) -> Outcome:
        redis.arrive()
        return await made

    with asyncio.Runner() as first, asyncio.Runner() as second:
        made = first.run(begin())
        with pytest.raises(RuntimeError, match="belongs to the event loop that used it first"):
            second.run(group.add(Encoded("R", "second", b"x", 1)))
        assert isinstance(first.run(end(made)), Scheduled)
    assert redis.trips == [["first"]]
    assert group.waiting == 0
