"""A new owner brings back what its predecessor parked, and nothing of an ordering key overtakes meanwhile."""

from __future__ import annotations

from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.targets import OK
from tests.support.servers import ServerUnderTest
from tests.workers.one_queue import OneQueue
from workers.sending.message import InFlightMessage

KEYS = [f"key-{number:02}" for number in range(30)]  # more than come back in one tick
PREDECESSOR = "0000000000.00000000000000000001"


def test_a_message_that_falls_due_while_its_elder_comes_back_stays_behind_it(valkey: ServerUnderTest) -> None:
    world = OneQueue(Store(valkey.url))
    for key in KEYS:
        world.add(f"elder-{key}", ordering_key=key)
    pulled = world.store.run(commands.pull(world.keys, PREDECESSOR, offset=0, room=100, now=world.now))
    assert isinstance(pulled, commands.Pulled)
    for ticket, score, attempts, raw in zip(
        pulled.tickets, pulled.scores, pulled.attempts, pulled.records, strict=True
    ):
        held = InFlightMessage(ticket, score, attempts, raw)
        world.store.run(commands.park(world.keys, PREDECESSOR, f"k:general/{held.ordering_key}", [held]))

    hand = world.take_over()
    hand.tick()
    while hand.job.in_flight.unread:
        hand.tick()
    assert hand.parked, "nothing is left to come back: the case is not made"
    world.advance(1)
    for key in KEYS:
        world.add(f"younger-{key}", ordering_key=key, at=world.elapsed)
    hand.run(1_500, lambda held: OK)
    for key in KEYS:
        assert [id for id in hand.sent if id.endswith(key)] == [f"elder-{key}", f"younger-{key}"]
    world.close()
    world.store.close()
