"""A hundred thousand due messages of a target that is away: parked, seen, and none of the others' business."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest

from api.app import create_app
from delayq import Client, Message, Scheduled, Settings, StoreError
from delayq.codec import due_head, encode
from delayq.config import load_settings
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from delayq.testing import MemoryTarget, register_memory_target
from tests.docs.blocks import ROOT
from tests.protocol.world import RETENTION
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.one_queue import START, OneQueue
from workers.node.alarms import EVERY
from workers.queue.tenure import Bounds
from workers.sending.backoff import Backoff
from workers.sending.circuit import PROBES

pytestmark = pytest.mark.long

MANY = 100_000
SECONDS = 100.0
FULL = 60  # messages: more than a forwarder of these has room for
AWAY = Result.unavailable("the broker is away")


# -- what others pay: one queue, moved on by hand --------------------------------------------------------------------------


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
def test_with_100_000_parked_messages_others_cost_what_they_cost_without(valkey: ServerUnderTest, how: str) -> None:
    alone, few = what_others_pay(valkey.url, 0, how)
    beside, many = what_others_pay(valkey.url, MANY, how)
    assert few < 100
    assert many == MANY + few
    assert beside["sent when due"] == alone["sent when due"] == 50
    assert beside == alone


# -- for real --------------------------------------------------------------------------------------------------------------


def settings_for(url: str, away: MemoryTarget, fine: MemoryTarget) -> Settings:
    routes = [
        {"name": "away", "match": "away", "target": register_memory_target(away, "away")},
        {"name": "fine", "match": "fine", "target": register_memory_target(fine, "fine")},
        {"name": "streams", "match": "s.*"},
    ]
    return load_settings(redis_url=url, routes=json.dumps(routes), queues=4, retry_base=20, retry_cap=100)


def schedule(client: Client, topic: str, ids: list[str]) -> None:
    """Messages that are due at once, one after the other."""
    for start in range(0, len(ids), 10_000):
        some = ids[start : start + 10_000]
        messages = [Message(topic=topic, id=id, expect_date=1_000 + start + n) for n, id in enumerate(some)]
        assert {type(one) for one in client.schedule_many(messages)} == {Scheduled}


def parked(client: Client) -> int:
    return sum(queue.parked for queue in client.stats())


async def ask_api(settings: Settings, *paths: str) -> list[Any]:
    """What the API answers."""
    app = create_app(settings)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api,
    ):
        return [(await api.get(path)).json() for path in paths]


def say(settings: Settings, *words: str) -> Any:
    """What the command line says, as JSON."""
    command = [sys.executable, "-m", "delayq.cli", *words, "--json", "--redis-url", settings.redis_url]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.timeout(400)
def test_100_000_parked_messages_are_seen_cancelled_and_all_come_back_once(valkey: ServerUnderTest) -> None:
    away, fine = MemoryTarget(), MemoryTarget()
    settings = settings_for(valkey.url, away, fine)
    away.answer("unavailable", reason="the broker is away")
    ids = [f"m{number:06}" for number in range(MANY)]
    with RunningNode(settings) as node, Client(settings=settings) as client:
        first = [f"first{number}" for number in range(20)]
        schedule(client, "away", first)
        eventually(lambda: parked(client) == len(first), "the circuit is open")
        schedule(client, "away", ids)
        eventually(lambda: parked(client) == MANY + len(first), "all are parked")
        tried = {one.id for one in away.attempted} & set(ids)
        assert len(tried) < 100, "only probes were sent"

        # The others go on.
        schedule(client, "fine", [f"fine{number}" for number in range(500)])
        schedule(client, "s.x", [f"s{number}" for number in range(500)])
        fine.wait_for(500, SECONDS)
        eventually(lambda: valkey.admin.xlen("s.x") == 500, "they are in their stream")

        # Everybody sees the parked ones.
        found = [one for one in client.get_many(ids[:2_000]) if one is not None]
        assert Counter((one.state, one.attempts) for one in found).most_common(1)[0][0] == ("parked", 0)
        assert {one.attempts for one in found} == {0}, "none was burnt"
        stats, queues, one = asyncio.run(ask_api(settings, "/v1/stats", "/v1/queues", f"/v1/messages/{ids[-1]}"))
        told = say(settings, "queues")["queues"]
        assert abs(stats["parked"] - MANY - len(first)) < 50  # some are probes at the moment
        assert abs(sum(queue["parked"] for queue in queues["queues"]) - stats["parked"]) < 50
        assert abs(sum(queue["parked"] for queue in told) - stats["parked"]) < 50
        assert abs(say(settings, "stats")["parked"] - stats["parked"]) < 50
        assert one["state"] == "parked"
        cancelled = ids[50_000:50_010]
        assert {one.result for one in client.cancel_many(cancelled)} == {"in_flight"}
        assert {one and one.state for one in client.get_many(cancelled)} & {"parked"} == set()
        watch = node.node.watch
        assert watch is not None
        watch._look_at -= EVERY  # as if the time of its next look had come
        eventually(lambda: watch.parked > MANY - 50, "the metrics tell of them")

        # It is back: all come, once; what it does not want is buried with its words.
        batches = len(away.batches)
        away.answer("ok")
        away.answer("rejected", id=ids[70_000], reason="no such order")
        eventually(lambda: sum(q.parked + q.scheduled for q in client.stats()) == 0, "all have ended")
        (letter,) = client.dead_letters().letters
        assert (letter.id, letter.reason, letter.attempts) == (ids[70_000], "no such order", 1)
        assert min(away.batches[batches : batches + 20]) <= PROBES, "it began with probes"
    wanted = set(first) | set(ids) - set(cancelled) - {ids[70_000]}
    assert Counter(away.ids) == dict.fromkeys(wanted, 1)
    assert {one.attempt for one in away.deliveries if one.id.startswith("m")} == {1}
