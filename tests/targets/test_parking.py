"""Many due messages of a target that is away: they are parked, other topics do not notice, and all come back once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from delayq import Client, Message, Scheduled, StoreError
from delayq.codec import due_head, encode
from delayq.config import load_settings
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from delayq.testing import MemoryTarget, register_memory_target
from tests.protocol.world import RETENTION
from tests.support.amounts import amount
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT, SEND_TIMEOUT
from tests.support.waiting import eventually
from tests.workers.one_queue import START, OneQueue
from workers.node.alarms import EVERY
from workers.queue.tenure import Bounds
from workers.sending.backoff import Backoff
from workers.sending.circuit import PROBES

MANY = amount(5_000, 100_000)
FULL = 60  # messages: more than a forwarder of these has room for
AWAY = Result.unavailable("the broker is away")


class Counting(Store):
    """A store that counts what it is asked."""

    commands = 0
    trips = 0

    def run_many(self, wanted: Iterable[Command[Any]]) -> list[Any | StoreError]:
        asked = list(wanted)
        self.commands += len(asked)
        self.trips += 1
        return super().run_many(asked)


def fill(world: OneQueue, count: int) -> None:
    """Schedule so many messages of the topic g.t, due now."""
    body = encode(Message(topic="g.t", expect_date=START), world.limits, due_head(START))
    for start in range(0, count, 500):
        ids = [f"many{number}" for number in range(start, min(count, start + 500))]
        command = commands.schedule(
            world.keys, "A" * len(ids), ids, [body] * len(ids), now=world.now, retention=RETENTION
        )
        assert world.store.run(command).others == {}


def what_others_pay(url: str, parked: int, how: str) -> tuple[Counter[str], int]:
    """For 50 messages of another topic, one each ms, while so many of a target that is `how` are parked; and how many.

    Of one that hangs no send ends; a few messages are on their way to it all the time.
    """
    store = Counting(url)
    world = OneQueue(store, bounds=Bounds(window=2_000, look=500, backoff=Backoff(100, 1_000)))
    try:
        hand = world.take_over()
        for number in range(FULL):
            world.add(f"first{number}")

        def answer() -> None:
            if how == "away":
                hand.answer_all(AWAY)

        def pass_time(ms: int) -> None:
            for _ in range(ms):
                hand.settle()
                answer()
                world.advance(1)

        pass_time(400)  # its circuit opens and back-offs end, or it has no room and finishes nothing
        fill(world, parked)
        hand.job.wake(START)
        for _ in range(10_000):
            hand.tick()
            answer()
            if world.stats().parked >= parked:
                break
        world.add("known", topic="o.t", at=world.elapsed)  # the first of a topic takes another pull
        pass_time(100)
        hand.answer_all(OK, "other")
        paid: Counter[str] = Counter()
        for number in range(50):
            hand.settle()
            world.add(f"other{number}", topic="o.t", at=world.elapsed + 1)
            world.advance(1)
            commands_before, trips_before = store.commands, store.trips
            hand.tick()
            paid["commands"] += store.commands - commands_before
            paid["trips"] += store.trips - trips_before
            paid["sent when due"] += f"other{number}" in hand.forwarders["other"].ids
            hand.answer_all(OK, "other")
        return paid, world.stats().parked
    finally:
        world.close()
        store.close()


@pytest.mark.parametrize("how", ["away", "hanging"])
def test_other_topics_cost_the_same_beside_many_parked_messages(valkey: ServerUnderTest, how: str) -> None:
    alone, few = what_others_pay(valkey.url, 0, how)
    beside, many = what_others_pay(valkey.url, MANY, how)
    assert few < 100
    assert many == MANY + few
    assert beside["sent when due"] == alone["sent when due"] == 50
    assert beside == alone


def test_what_was_parked_is_cancelled_or_comes_back_once(valkey: ServerUnderTest) -> None:
    away, fine = MemoryTarget(), MemoryTarget()
    routes = [
        {"name": "away", "match": "away", "target": register_memory_target(away, "away")},
        {"name": "fine", "match": "fine", "target": register_memory_target(fine, "fine")},
    ]
    settings = load_settings(
        redis_url=valkey.url,
        routes=json.dumps(routes),
        queues=4,
        retry_base=20,
        retry_cap=100,
        redis_timeout=REDIS_TIMEOUT,
        send_timeout=SEND_TIMEOUT,
    )
    ids = [f"m{number:06}" for number in range(MANY)]
    cancelled, rejected = ids[MANY // 2 : MANY // 2 + 10], ids[-1]
    away.answer("unavailable", reason="the broker is away")
    with RunningNode(settings) as node, Client(settings=settings) as client:

        def left() -> tuple[int, int]:
            """How many are parked, and how many scheduled."""
            stats = client.stats()
            return sum(queue.parked for queue in stats), sum(queue.scheduled for queue in stats)

        def schedule(topic: str, some: list[str]) -> None:
            messages = [Message(topic=topic, id=id, expect_date=1_000 + place) for place, id in enumerate(some)]
            assert {type(one) for one in client.schedule_many(messages)} == {Scheduled}

        first = [f"first{number}" for number in range(20)]
        schedule("away", first)
        eventually(lambda: left()[0] == len(first), "the circuit is open")
        for start in range(0, MANY, 10_000):
            schedule("away", ids[start : start + 10_000])
        eventually(lambda: left()[0] == MANY + len(first), "all are parked")
        assert len({one.id for one in away.attempted} & set(ids)) < 100, "only probes were sent"
        assert {one.attempts for one in client.get_many(ids[:1_000]) if one is not None} == {0}, "no attempt was burnt"
        schedule("fine", [f"fine{number}" for number in range(500)])
        eventually(lambda: len(fine.ids) == 500, "the others go on")

        assert {one.result for one in client.cancel_many(cancelled)} == {"in_flight"}
        watch = node.node.watch
        assert watch is not None
        watch._look_at -= EVERY  # as if the time of its next look had come
        eventually(lambda: watch.parked > MANY - 50, "the metrics report them")

        batches = len(away.batches)
        away.answer("ok")
        away.answer("rejected", id=rejected, reason="no such order")
        eventually(lambda: left() == (0, 0), "all have ended")
        (letter,) = client.dead_letters().letters
        assert (letter.id, letter.reason, letter.attempts) == (rejected, "no such order", 1)
        assert min(away.batches[batches : batches + 20]) <= PROBES, "it began with probes"
    wanted = set(first) | set(ids) - {*cancelled, rejected}
    assert Counter(away.ids) == dict.fromkeys(wanted, 1)
    assert {one.attempt for one in away.deliveries if one.id.startswith("m")} == {1}
