from __future__ import annotations
from tests.workers.one_queue import OneQueue, START
from delayq.store.store import Store
from delayq.store import commands
from workers.dispatch import Policy
from workers.held import Held
from tests.support.servers import ServerUnderTest

def test_overtake(valkey: ServerUnderTest) -> None:
    world = OneQueue(Store(valkey.url), policy=Policy(window=300, look=50, max_attempts=3))
    keys=[f"K{k:02}" for k in range(30)]
    for k in keys:
        world.add(f"m-{k}", ordering_key=k, at=0)
    world.advance(30)
    epoch="0000000000.00000000000000000001"
    pulled=world.store.run(commands.pull(world.keys, epoch, offset=0, room=100, now=world.now))
    for t,s,a,r in zip(pulled.tickets,pulled.scores,pulled.attempts,pulled.records):
        h=Held(t,s,a,r)
        world.store.run(commands.park(world.keys, epoch, "k:"+h.ordering_key, [h]))
    hand = world.take_over()
    hand.tick()
    hand.tick()
    print(hand.job.dispatch.flight.offset.due-START, hand.job.dispatch.flight.offset.unread, len(hand.job.dispatch.keys_to_unpark))
    world.advance(1)
    for k in keys: world.add(f"n-{k}", ordering_key=k, at=world.elapsed)
    hand.tick()
    from delayq.targets import OK
    hand.run(1500, lambda h: OK)
    print(hand.sent)
    for k in keys:
        mine=[i for i in hand.sent if i.endswith(k)]
        assert mine==[f"m-{k}",f"n-{k}"], mine
    world.close(); world.store.close()
