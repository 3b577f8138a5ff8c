"""When a big plain backlog goes by transactions, when it does not, and how that ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq.errors import StoreUnavailable
from delayq.store import commands
from delayq.store.commands.appending import Batch
from delayq.store.connect.append_transaction import Appended
from delayq.targets import OK
from tests.support.servers import ServerUnderTest
from tests.workers.conftest import Worlds
from tests.workers.one_queue import START, Hand, OneQueue
from workers.queue.appending import MOST, MOST_BYTES
from workers.queue.flood import LATE
from workers.queue.policy import Policy
from workers.sending.backoff import Backoff
from workers.telemetry.metrics import Metrics

POLICY = Policy(window=300, look=500, max_attempts=3, backoff=Backoff(100, 1_000))


@pytest.fixture
def world(worlds: Worlds) -> OneQueue:
    """A queue with a policy as workers have it."""
    return worlds(policy=POLICY)


def backlog(world: OneQueue, count: int, **options: Any) -> list[str]:
    """Messages that are due at once; their ids in order."""
    ids = [f"b{number:04}" for number in range(count)]
    for id in ids:
        world.add(id, topic="s.t", **options)
    world.advance(5)
    return ids


class Watched:
    """Keeps the batches that a job appends; `before` is called before each."""

    def __init__(self, hand: Hand, before: Callable[[], object] = lambda: None) -> None:
        self.sizes: list[int] = []
        self.bytes: list[int] = []
        self.before = before
        self._append = hand.job.appending.append
        hand.job.appending.append = self  # type: ignore[method-assign,assignment]  # to stand in between

    def __call__(self, batch: Batch, now: int, *, ask: bool = False) -> Appended:
        self.sizes.append(len(batch))
        self.bytes.append(batch.bytes)
        self.before()
        return self._append(batch, now, ask=ask)


def test_a_big_plain_backlog_goes_by_transactions_in_order_and_a_pull_ends_it(world: OneQueue) -> None:
    ids = backlog(world, 600, keys=("k",), properties={"n": "v"})
    hand = world.take_over()
    watched = Watched(hand)
    hand.settle()
    assert world.stream("s.t") == ids
    assert world.records() == {}
    assert world.tickets() == {}
    assert sum(watched.sizes) > 400
    assert max(watched.sizes) <= MOST
    assert watched.sizes[1] > watched.sizes[0]
    assert (world.field("forwarded"), world.field("sleep_until")) == ("600", "none")
    assert hand.pause > 1


def test_the_metrics_count_what_was_appended_either_way(world: OneQueue) -> None:
    backlog(world, 300)
    metrics = Metrics()
    world.take_over(observer=metrics).settle()
    assert metrics.registry.get_sample_value("delayq_appended_total") == 300
    assert metrics.registry.get_sample_value("delayq_lateness_seconds_count") == 300
    assert metrics.registry.get_sample_value("delayq_lateness_seconds_bucket", {"le": "60.0"}) == 300


def test_a_backlog_that_a_pull_takes_at_once_or_that_is_mixed_goes_by_pulls(world: OneQueue) -> None:
    hand = world.take_over()
    watched = Watched(hand)
    backlog(world, 40)
    hand.settle()
    for number in range(200):
        world.add(f"m{number:03}", topic="s.t" if number % 3 else "g.t", at=10)
    world.advance(20)
    hand.run(50, lambda held: OK)
    assert len(world.stream("s.t")) == 40 + 133
    assert watched.sizes == []


def test_what_is_not_plain_is_left_to_pulls_and_the_rest_goes_on_behind_it(world: OneQueue) -> None:
    for number in range(400):
        options: dict[str, Any] = {"expire_after": 1} if number == 210 else {}
        world.add(f"b{number:04}", topic="g.t" if number == 200 else "s.t", **options)
    world.advance(5)
    hand = world.take_over()
    watched = Watched(hand)
    hand.settle()
    assert len(world.stream("s.t")) == 398
    assert hand.sending == ["b0200"]
    assert world.state_of("b0210") == "dead"
    assert len(watched.sizes) >= 2


def test_what_comes_between_stops_a_transaction_and_pulls_go_on(world: OneQueue) -> None:
    ids = backlog(world, 400)
    hand = world.take_over()
    cancelled: list[str] = []

    def cancel() -> None:
        if not cancelled:
            standing = sorted(world.records())
            cancelled.append(standing[0])
            assert world.cancel(standing[0]) == "in_flight"

    Watched(hand, cancel)
    hand.settle()
    assert world.stream("s.t") == [id for id in ids if id not in cancelled]
    assert len(cancelled) == 1


def test_an_owner_that_is_fenced_between_reading_and_appending_appends_nothing_more(world: OneQueue) -> None:
    ids = backlog(world, 400)
    old = world.take_over(node=1)
    new: list[Hand] = []

    def take_over() -> None:
        if not new:
            new.append(world.take_over(node=2))

    Watched(old, take_over)
    while not old.job.fenced:
        old.tick()
    before = len(world.stream("s.t"))
    new[0].settle()
    assert before < 400
    assert world.stream("s.t") == ids


def test_a_fence_that_is_met_first_by_a_transaction_ends_the_job(world: OneQueue) -> None:
    backlog(world, 400)
    old = world.take_over(node=1)
    while not old.job.appending.wanted:
        old.tick()
    world.take_over(node=2)
    before = world.stream("s.t")
    old.tick()
    assert old.job.fenced
    assert world.stream("s.t") == before


def test_a_key_that_stops_being_a_stream_has_its_messages_buried(world: OneQueue) -> None:
    for number in range(300):
        world.add(f"b{number:04}", topic="s.u" if number % 2 else "s.t")
    world.advance(5)
    hand = world.take_over()
    done: list[int] = []

    def spoil() -> None:
        if not done:
            done.append(len(world.stream("s.u")))
            world.store.run(commands.plain("DEL", "s.u", read=lambda _: None))
            world.store.run(commands.plain("SET", "s.u", "a string", read=lambda _: None))

    Watched(hand, spoil)
    hand.settle()
    assert world.stream("s.t") == [f"b{number:04}" for number in range(0, 300, 2)]
    assert len(world.dead()) == 150 - done[0]
    assert {one.reason for one in world.dead().values()} == {"the key s.u is not a stream"}
    assert world.tickets() == {}


def test_large_bodies_go_a_few_at_a_time_or_by_pulls(world: OneQueue) -> None:
    ids = backlog(world, 300, body="x" * 9_000)
    hand = world.take_over()
    watched = Watched(hand)
    hand.settle()
    assert world.stream("s.t") == ids
    assert watched.bytes
    assert max(watched.bytes) < MOST_BYTES + 10_000
    assert max(watched.sizes) < 30


def test_after_trouble_pulls_have_it_for_a_while(world: OneQueue) -> None:
    ids = backlog(world, 400)
    hand = world.take_over()
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise StoreUnavailable("no answer")

    Watched(hand, fail)
    hand.settle()
    assert world.stream("s.t") == ids
    assert len(tries) == 1


def test_a_pull_looks_whether_a_flood_has_begun(world: OneQueue) -> None:
    backlog(world, 400)
    hand = world.take_over()
    while not hand.job.appending.wanted:
        hand.tick()
    world.advance(LATE - 1)
    assert hand.job.appending.wanted
    world.advance(1)
    assert not hand.job.appending.wanted


def test_a_job_that_is_to_stop_appends_no_more(world: OneQueue) -> None:
    backlog(world, 400)
    hand = world.take_over()
    while not hand.job.appending.wanted:
        hand.tick()
    before = world.stream("s.t")
    hand.job.stop()
    hand.tick()
    assert world.stream("s.t") == before
    assert hand.job.finished


def test_nothing_goes_by_a_clock_of_the_node_that_is_behind(world: OneQueue) -> None:
    for number in range(300):
        world.add(f"b{number:04}", topic="s.t", at=number)
    world.advance(400)
    hand = world.take_over()
    hand.job._clock.error = -150  # type: ignore[attr-defined]  # it is a NodeClock
    hand.settle()
    due = START + 250
    assert len(world.stream("s.t")) == 251
    assert world.field("watermark") == str(due)


def test_messages_that_were_given_a_retry_count_as_such(world: OneQueue, valkey: ServerUnderTest) -> None:
    ids = backlog(world, 300)
    for id in ids:
        valkey.admin.hset(world.keys.attempts, id, "1")
    hand = world.take_over()
    watched = Watched(hand)
    hand.settle()
    attempts = {entry[b"attempt"] for _, entry in valkey.admin.xrange("s.t")}
    assert attempts == {b"2"}
    assert watched.sizes
    assert valkey.admin.exists(world.keys.attempts) == 0
