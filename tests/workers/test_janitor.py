"""Messages without a ticket get it back, without anybody asking."""

from __future__ import annotations

from delayq.client.client import Client
from delayq.message import Message
from delayq.store import commands
from delayq.store.commands import plain
from delayq.store.keys import queue_keys
from delayq.testing import ManualClock
from tests.support.servers import ServerUnderTest
from workers.node.janitor import EVERY, Janitor


def test_a_message_whose_ticket_was_lost_gets_it_back(valkey: ServerUnderTest) -> None:
    clock = ManualClock()
    with Client(valkey.url) as client:
        lost = client.schedule(Message(topic="t", body="x", delay_time=60_000))
        kept = client.schedule(Message(topic="t", body="x", delay_time=60_000, id=f"kept{lost.id[-5:]}"))
        assert kept.queue == lost.queue
        keys = queue_keys(lost.queue)
        tickets = client.store.run(plain("ZRANGE", keys.queue, 0, -1, read=list))
        client.store.run(plain("ZREM", keys.queue, next(t for t in tickets if lost.id.encode() in t), read=int))
        janitor = Janitor(client.store, range(16), clock)
        for _ in range(17):
            clock.advance(EVERY // 16)
            janitor.tick()
        found = client.get(lost.id)
        assert found is not None
        assert found.due == lost.due
        assert client.store.run(commands.stats(keys)).counters["repaired"] == 1
