"""A real Redis Cluster in trouble: scripts lost, a slot on the move, servers killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from delayq import AsyncClient, Client, Message, Settings, StoreUnavailable
from delayq.client.scheduling.schedule import Scheduled
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from testbed.process import standing_still
from tests.support.clusters import QUEUES, ClusterUnderTest, id_in
from tests.support.nodes import RunningNode, settings_for
from tests.support.queues import Runner, row
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.queue.puller import Puller

pytestmark = pytest.mark.long

HOUR = 3_600_000


def test_a_primary_that_lost_its_scripts_gets_them_again(cluster: ClusterUnderTest, store: Runner) -> None:
    def schedule(turn: int) -> list[Any]:
        return store.run_many(
            commands.schedule(KEYS.queue(queue), "A", [f"m{turn}"], [b"9999999999999" + b"0" + row("x", at=1).content])
            for queue in range(QUEUES)
        )

    for turn in range(3):
        assert [answer.others for answer in schedule(turn)] == [{}] * QUEUES
        cluster.primaries[turn].admin.script_flush()


def test_for_what_is_not_answered_in_the_time_of_all_nobody_waits(cluster: ClusterUnderTest) -> None:
    store = Store(cluster.url, timeout=PATIENCE)
    wanted = [commands.stored_epoch(KEYS.queue(queue)) for queue in range(QUEUES)]
    known = store.end(store.begin(wanted, within=HOUR))
    assert all(isinstance(one, StoreUnavailable) for one in store.end(store.begin(wanted, within=0)))
    assert store.end(store.begin(wanted)) == known
    store.close()


async def test_a_primary_that_is_killed_is_replaced_and_nothing_accepted_is_lost(cluster: ClusterUnderTest) -> None:
    settings = Settings(redis_url=cluster.url, queues=QUEUES, min_replicas=1, redis_timeout=REDIS_TIMEOUT)
    lax = settings.replace(min_replicas=0)
    with Client(settings=settings) as client:
        async with AsyncClient(settings=lax) as other:

            def schedule(ids: Iterable[str]) -> dict[str, bool]:
                wanted = list(ids)
                outcomes = client.schedule_many(Message(topic="t", delay_time=HOUR, id=id) for id in wanted)
                assert all(isinstance(one, (Scheduled, StoreUnavailable)) for one in outcomes)
                return {id: isinstance(one, Scheduled) for id, one in zip(wanted, outcomes, strict=True)}

            assert all(schedule(f"before{number}" for number in range(200)).values())
            messages = [Message(topic="t", delay_time=HOUR, id=f"m{number}") for number in range(100)]
            assert all(isinstance(one, Scheduled) for one in await other.schedule_many(messages))
            victim = cluster.primary_of(KEYS.queue(3).state)
            victim.server.kill()
            during = schedule(f"during{number}" for number in range(200))
            assert set(during.values()) == {True, False}  # those of its queues, and the others
            # Its replica takes over, but has none of its own: it confirms nothing until the old primary is back.
            await asyncio.to_thread(cluster.replace, victim)
            while not all(isinstance(one, Scheduled) for one in await other.schedule_many(messages)):
                pass  # until the servers agree on the new primary
            await asyncio.to_thread(cluster.heal)
            missing = [id for id, accepted in during.items() if not accepted]
            eventually(lambda: all(schedule(missing).values()), "the same client goes on")
            found = client.get_many([f"before{number}" for number in range(200)] + list(during))
            assert [one.state if one else None for one in found] == ["scheduled"] * 400
            assert sum(one.scheduled for one in await other.queues()) == 500


def test_wakes_are_heard_after_the_server_that_was_listened_to_has_died(cluster: ClusterUnderTest) -> None:
    store = Store(cluster.url, timeout=PATIENCE)
    wakes = Wakes(store.connect)
    channels = [KEYS.queue(queue).wake for queue in range(QUEUES)]

    def listen() -> int:
        wakes.connect(channels)
        assert [wakes.receive(PATIENCE) for _ in channels] == [("", b"")] * QUEUES
        assert wakes._connection is not None
        return wakes._connection.address[1]

    port = listen()
    for channel in channels:  # whichever server publishes, this one hears it
        cluster.publish(channel, "1")
    assert sorted(wakes.receive(PATIENCE) or ("", b"") for _ in channels) == sorted((one, b"1") for one in channels)
    next(one for one in cluster.members if one.port == port).server.kill()
    with pytest.raises(StoreUnavailable):
        wakes.receive(PATIENCE)
    assert listen() != port
    cluster.heal()
    for channel in channels:
        cluster.publish(channel, "2")
    wanted = {(one, b"2") for one in channels}
    heard: set[object] = set()
    for _ in range(2 * QUEUES):  # the first ones may have been slow from server to server, and come only now
        if not wanted <= heard:
            heard.add(wakes.receive(PATIENCE))
    assert wanted <= heard
    wakes.close()
    store.close()


def pullers(node: RunningNode) -> dict[int, Puller]:
    """Which thread pulls which queue."""
    return {queue: cast(Any, job._wake_puller).__self__ for queue, job in node.node.jobs.items()}


def test_a_primary_that_stands_still_holds_up_no_queue_of_another_one(cluster: ClusterUnderTest) -> None:
    target = MemoryTarget()
    # Whoever waits for that primary waits for longer than this test does.
    settings = settings_for(cluster.url, target, queues=QUEUES, redis_timeout=60_000)
    primaries = {queue: cluster.primary_of(KEYS.queue(queue).state) for queue in range(QUEUES)}
    victim = primaries[0]
    others = [queue for queue, primary in primaries.items() if primary is not victim]
    pid = victim.server.pid
    assert pid is not None
    with RunningNode(settings) as node, Client(settings=settings) as client:
        eventually(lambda: len(set(pullers(node).values())) == 3, "each primary has a thread")
        ids = [id_in(queue, "m") for queue in others]
        client.context()  # asks every server, and so not while one stands still
        with standing_still(pid):
            for id in ids:
                client.schedule(Message(topic="m.t", delay_time=0, id=id))
            eventually(lambda: set(target.ids) == set(ids), "those of the others arrive")
        cluster.heal()
    target.close()


def test_a_queue_whose_slot_moves_goes_over_to_the_thread_of_its_new_primary(cluster: ClusterUnderTest) -> None:
    target, queue = MemoryTarget(), 5
    settings = settings_for(cluster.url, target, queues=QUEUES, redis_timeout=REDIS_TIMEOUT)
    keys = KEYS.queue(queue)
    to = next(one for one in cluster.primaries if one is not cluster.primary_of(keys.state))
    beside = next(one for one in range(QUEUES) if cluster.primary_of(KEYS.queue(one).state) is to)
    with RunningNode(settings) as node, Client(settings=settings) as client:
        eventually(lambda: len(set(pullers(node).values())) == 3, "each primary has a thread")
        for _ in cluster.move_slot(keys.state, to):
            pass
        eventually(lambda: pullers(node)[queue] is pullers(node)[beside], "it goes over")
        id = client.schedule(Message(topic="m.t", delay_time=5, id=id_in(queue, "m"))).id
        target.wait_for_ids([id])
    assert target.ids == [id]
    target.close()
