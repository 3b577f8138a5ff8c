"""A stream in this Redis that takes nothing: only its own messages wait, and they come back by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from delayq.domain.routes import Routes
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import OK
from delayq.testing import ManualClock
from tests.support.servers import ServerUnderTest
from tests.workers.one_queue import TABLE, OneQueue
from workers.queue.queue_context import Bounds
from workers.queue.symptoms import PULLS_FAIL_AFTER
from workers.queue.topics import ASK_EVERY, Topics
from workers.sending.backoff import Backoff

BOUNDS = Bounds(window=300, look=500, max_attempts=3, backoff=Backoff(100, 1_000))
RIGHTS = ("on", ">limited", "resetkeys", "resetchannels", "&delayq:*", "&marker", "+@all", "~delayq:*", "~s.good")
LAST_ID = f"{2**64 - 1}-{2**64 - 1}"

Mend = Callable[[], object]


class Limited:
    """A queue whose owner is a user of Redis that may not write to every stream."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.admin = server.admin
        self.allow("allkeys")
        store = Store(server.url.replace("redis://", "redis://limited:limited@"))
        self.world = OneQueue(store, bounds=BOUNDS)
        self.allow(*RIGHTS)

    def allow(self, *rights: str) -> None:
        self.admin.execute_command("ACL", "SETUSER", "limited", "on", ">limited", "+@all", "allchannels", *rights)

    def stream(self, name: str) -> list[str]:
        """The ids in a stream, in order."""
        return [words[b"id"].decode() for _, words in self.admin.xrange(name) if b"id" in words]

    def close(self) -> None:
        self.allow("allkeys")
        self.world.close()
        self.world.store.close()
        self.admin.execute_command("ACL", "DELUSER", "limited")


@pytest.fixture
def limited(server: ServerUnderTest) -> Iterator[Limited]:
    made = Limited(server)
    yield made
    made.close()


def denied(limited: Limited) -> Mend:
    """The user of delayq may not write to `s.bad`; what mends it."""
    return lambda: limited.allow("~s.bad")


def exhausted(limited: Limited) -> Mend:
    """The last id of `s.bad` is the greatest; what mends it."""
    limited.allow("~s.bad")
    limited.admin.xadd("s.bad", {"last": "possible"}, id=LAST_ID)
    return lambda: limited.admin.delete("s.bad")


def without_xadd(limited: Limited) -> Mend:
    """The user of delayq may not append at all; what mends it."""
    limited.allow("~s.bad", "-xadd")
    return lambda: limited.allow("+xadd")


@pytest.mark.parametrize("fault", [denied, exhausted])
@pytest.mark.parametrize("bad", [3, 400])
def test_only_its_own_messages_wait_and_come_back_in_order_once_it_takes_them(
    limited: Limited, fault: Callable[[Limited], Mend], bad: int
) -> None:
    """E15 (a stream here takes nothing: no right, greatest last id): Its messages are parked without attempts, others
    are on time.

    All return within 30 s, once each.

    E15: The log has `stream_refuses`, `delayq_refusing_streams` counts the stream, `delayq doctor` warns. Within 30 s
    after the repair all messages return by themselves, in order and exactly once.
    """
    mend, world = fault(limited), limited.world
    expected = [f"b{number:03}" for number in range(bad)]
    for number, id in enumerate(expected):
        world.add(id, "s.bad", at=number, ordering_key="k" if number % 2 else "")
    world.add_many((f"g{number:03}" for number in range(300)), "s.good", every=2)
    world.add("general", "g.t", at=1)
    hand = world.take_over()
    assert hand.run(700, lambda held: OK) == ["general"]
    assert limited.stream("s.good") == [f"g{number:03}" for number in range(300)]
    assert {world.state_of(id) for id in expected} == {"parked"}
    assert not world.dead()
    world.add("later", "s.bad", at=800, ordering_key="k")
    world.add("good", "s.good", at=800)
    hand.run(5_000, lambda held: OK)
    assert limited.stream("s.good")[-1] == "good"
    assert world.state_of("later") == "parked"
    mend()
    hand.run(ASK_EVERY + 2_000, lambda held: OK)
    assert limited.stream("s.bad") == [*expected, "later"]
    assert {one.decode() for _, words in limited.admin.xrange("s.bad") for one in [words[b"attempt"]]} == {"1"}
    assert not world.tickets()
    assert world.stats().missing == 0


@pytest.mark.parametrize("fault", [denied, exhausted, without_xadd])
def test_a_big_backlog_is_held_up_by_none_of_them(limited: Limited, fault: Callable[[Limited], Mend]) -> None:
    """E15: This holds also with hundreds of such messages at the head."""
    world = limited.world
    for number in range(1_000):
        world.add(f"m{number:03}", "s.bad" if number % 100 == 70 else "s.good")
    mend = fault(limited)
    world.advance(5)
    hand = world.take_over()
    hand.run(3_000)
    good = [f"m{number:03}" for number in range(1_000) if number % 100 != 70]
    assert limited.stream("s.good") == ([] if fault is without_xadd else good)
    assert limited.stream("s.bad") == []
    mend()
    hand.run(ASK_EVERY + 2_000)
    assert limited.stream("s.good") == good
    assert len(limited.stream("s.bad")) == 10
    assert not world.tickets()


def test_a_stream_that_takes_messages_again_waits_for_no_other_of_its_route_and_a_new_owner_tries_both(
    limited: Limited,
) -> None:
    world, worse = limited.world, [f"m{number:02}" for number in range(40)]
    world.add("bad", "s.bad")
    world.add("late", "s.bad", expire_after=3_000)
    world.add_many(worse, "s.worse")
    hand = world.take_over()
    hand.run(5_000)
    assert world.state_of("late") == "parked"
    limited.allow("~s.bad")
    hand.run(10_000)
    assert limited.stream("s.bad") == ["bad"]
    assert world.dead()["late"].reason == "expired"
    assert world.state_of("m00") == "parked"
    limited.allow("~s.worse")
    world.take_over(node=2).settle()
    assert limited.stream("s.worse") == worse


def test_a_trouble_of_the_whole_redis_is_not_laid_at_a_streams_door(limited: Limited) -> None:
    world = limited.world
    world.add("m", "s.good")
    hand = world.take_over()
    limited.admin.config_set("min-replicas-to-write", 1)
    try:
        for _ in range(5):
            assert hand.tick() > 0
        assert hand.job.topics.refused == {}
    finally:
        limited.admin.config_set("min-replicas-to-write", 0)
    assert world.state_of("m") == "due"
    hand.run(2_000)
    assert limited.stream("s.good") == ["m"]


def test_a_queue_of_which_every_pull_fails_is_told(limited: Limited) -> None:
    """E15, F10: The worker's `/readyz`, `delayq_failing_queues` and `delayq doctor` report a queue whose every pull
    fails."""
    world = limited.world
    hand = world.take_over()
    limited.admin.set(world.keys.queue, "no sorted set")
    for _ in range(3):
        hand.tick()
        world.advance(PULLS_FAIL_AFTER)
    assert "WRONGTYPE" in (hand.job.pulls_fail or "")
    limited.admin.delete(world.keys.queue)
    hand.tick()
    assert hand.job.pulls_fail is None


def test_a_stream_that_takes_nothing_is_asked_now_and_then_until_it_takes_something(clock: ManualClock) -> None:
    topics = Topics(Routes(TABLE), "redis://localhost", KEYS)
    assert topics.to_ask(clock.monotonic()) == []
    assert topics.refuse("s.t", "no")
    assert not topics.refuse("s.t", "nor this, which was on its way")
    for _ in range(2):
        clock.advance(ASK_EVERY)
        assert topics.to_ask(clock.monotonic()) == ["s.t"]
        clock.advance(ASK_EVERY - 1)
        assert topics.to_ask(clock.monotonic()) == []
    assert (topics.take_again("s.t"), topics.take_again("s.t")) == ("t:streams", None)
    assert (topics.refused, topics.to_ask(clock.monotonic() + 1)) == ({}, [])
