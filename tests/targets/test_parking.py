"""Many due messages of a target that is away: they are parked, other topics do not notice, and all come back once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from delayq import Message, StoreError
from delayq.domain.codec import due_head, encode
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from tests.protocol.world import RETENTION
from tests.support.amounts import amount
from tests.support.servers import ServerUnderTest
from tests.workers.one_queue import START, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff

MANY = amount(5_000, 100_000)
FULL = 60  # messages: more than a sender of these has room for
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
            paid["sent when due"] += f"other{number}" in hand.senders["other"].ids
            hand.answer_all(OK, "other")
        return paid, world.stats().parked
    finally:
        world.close()
        store.close()


@pytest.mark.parametrize("how", ["away", "hanging"])
def test_other_topics_cost_the_same_beside_many_parked_messages(valkey: ServerUnderTest, how: str) -> None:
    """E2: Other topics are as punctual as before beside 5,000 parked messages, and beside 100,000 in `./dev test
    --all`."""
    alone, few = what_others_pay(valkey.url, 0, how)
    beside, many = what_others_pay(valkey.url, MANY, how)
    assert few < 100
    assert many == MANY + few
    assert beside["sent when due"] == alone["sent when due"] == 50
    assert beside == alone
