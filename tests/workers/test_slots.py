"""Of a topic with `maxInFlight` no more than so many messages are sent at a time, whoever owns the queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from delayq import Client, Message
from delayq.errors import StoreUnavailable
from delayq.policies import Policy
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import queue_keys
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.one_queue import Hand, OneQueue
from workers.queue.in_flight import InFlight
from workers.queue.slots import BESIDES
from workers.sending.forwarder import _Group, _Send

Worlds = Callable[..., OneQueue]
LOST = StoreUnavailable("the reply was lost")


def at_a_time(world: OneQueue, most: int, match: str = "g.t", **policy: object) -> None:
    fields = ", ".join(f'"{name}": {value}' for name, value in {"maxInFlight": most, **policy}.items())
    world.change(Change("policy:p", f'{{"match": "{match}", {fields}}}'))


def sending(*hands: Hand) -> list[str]:
    return [id for hand in hands for id in hand.sending if id[0] == "g"]


def taken(world: OneQueue, name: str = "g.t") -> int:
    return world.store.run(commands.plain("ZCARD", f"delayq:slots:{name}", read=int))


def live(hands: list[Hand], ms: int, lasts: int, most: int) -> int:
    """Let so much time pass; each send takes so long. No more than so many are sent at a time; how many ended."""
    world, began, ended = hands[0].world, dict[str, int](), 0
    end = world.elapsed + ms
    while world.elapsed < end:
        for hand in hands:
            hand.leases.tick()
            hand.settle()
        for hand in hands:
            for id in hand.sending:
                if world.elapsed - began.setdefault(id, world.elapsed) >= lasts:
                    del began[id]
                    hand.answer(id)
                    ended += 1
        for hand in hands:
            hand.settle()
        assert len(sending(*hands)) <= most
        for hand in hands:
            hand.world.advance(10)
    return ended


def test_no_more_are_sent_at_a_time_and_all_go_lowest_first_while_other_topics_do_not_wait(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    at_a_time(world, 3)
    for n in range(60):
        world.add(f"g{n:03}", at=n % 3)
        world.add(f"o{n:03}", topic="o.t", at=n % 3)
    world.advance(5)
    live([hand], 3_000, 50, 3)
    assert {f"o{n:03}" for n in range(60)} <= set(hand.sent[:70])
    bound = [id for id in hand.sent if id[0] == "g"]
    assert len(bound) == world.stats().counters["forwarded"] - 60 == 60
    assert [int(id[1:]) % 3 for id in bound] == sorted(int(id[1:]) % 3 for id in bound)
    live([hand], 2_500, 50, 3)
    assert hand.leases.tick() > 1_000, "what is idle asks nothing"
    assert taken(world) == 0


class Lossy:
    """Some replies to who asks for slots are lost, after or before Redis had the question."""

    def __init__(self, store: Any, lost: Collection[int] = range(2, 400, 7), away: Collection[int] = ()) -> None:
        self.store, self.count, self.lost, self.away = store, 0, lost, away

    def run_many(self, wanted: list[Any]) -> list[Any]:
        self.count += 1
        if self.count in self.away:
            return [LOST] * len(wanted)
        answers = self.store.run_many(wanted)
        return [LOST] * len(wanted) if self.count in self.lost else answers


def by_two_nodes(worlds: Worlds, *, faults: bool) -> int:
    """How many of 60 messages two nodes have sent together, a queue each, never more than 3 at a time."""
    hands = []
    made = [worlds(), worlds()]
    for node, world in enumerate(made):
        world.keys = queue_keys(node)
        hands.append(world.take_over(node=node + 1))
        for n in range(30):
            world.add(f"g{node}{n:02}", at=n % 3)
        if faults:
            hands[node].leases._store = Lossy(world.store, away=range(5, 400, 7))  # type: ignore[assignment]
    at_a_time(made[0], 3)
    hands[1].book.current = hands[0].book.current
    ended = 0
    for place in range(40):
        ended += live(hands, 300, 30, 3)
        if faults and place % 3 == 2:
            hands[place % 2].job.failed()
            hands[place % 2].settle()
    assert len(sending(*hands)) <= 3
    return ended


@pytest.mark.parametrize("faults", [False, True])
def test_two_nodes_share_them_also_with_lost_replies_and_resets_and_all_go(worlds: Worlds, faults: bool) -> None:
    assert by_two_nodes(worlds, faults=faults) == 60


@pytest.mark.parametrize("mistake", ["slots of each node", "sent without a slot"])
def test_each_mistake_would_be_seen(worlds: Worlds, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    if mistake == "slots of each node":
        take = commands.take_slots

        def of_its_own(name: str, most: int, life: int, wanted: int, call: str, *rest: Any, **now: Any) -> Any:
            return take(name + call.split(":")[0], most, life, wanted, call, *rest, **now)

        monkeypatch.setattr(commands, "take_slots", of_its_own)
    if mistake == "sent without a slot":
        monkeypatch.setattr(InFlight, "_with_slots", lambda self, share, batch: batch)
    with pytest.raises(AssertionError):
        by_two_nodes(worlds, faults=True)


def test_what_a_lost_reply_took_is_given_back_and_what_a_killed_owner_had_is_free_again_in_time(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    at_a_time(world, 2)
    for n in range(4):
        world.add(f"g{n}", at=0)
    hand.leases._store = Lossy(world.store, lost={1})  # type: ignore[assignment]
    live([hand], 500, 10_000, 2)
    assert (sending(hand), taken(world)) == ([], 2)
    live([hand], 1_500, 10_000, 2)
    assert (sending(hand), taken(world)) == (["g0", "g1"], 2)
    other = world.take_over(node=2)  # the first one is gone, with what it was sending
    other.book.current = hand.book.current
    life = other.forwarders["general"].longest + BESIDES
    live([other], life - 2_000, 0, 0)
    assert live([other], 2_500, 10, 2) == 4
    assert world.stats().counters["forwarded"] == 4


def test_a_message_whose_slot_may_end_before_its_send_is_not_sent(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    at_a_time(world, 2)
    world.add("g", at=0)
    live([hand], 100, 10_000, 2)
    forwarder = hand.forwarders["general"]
    group = _Group(hand.job.report, [forwarder.outbox[0][1][0]], 0, world.elapsed)
    late = [forwarder._outdated(_Send([group], world.elapsed + ms)) for ms in (500, 1_000, 1_600)]
    assert late == [False, False, True]


def test_a_node_with_a_slow_target_sends_no_more_at_a_time_and_all_go(valkey: ServerUnderTest) -> None:
    class Counting(MemoryTarget):
        def __init__(self) -> None:
            super().__init__(max_batch=1, latency=20)
            self.lock, self.now, self.most = threading.Lock(), 0, 0

        def send(self, batch: Any, timeout: float) -> Any:
            with self.lock:
                self.now += len(batch)
                self.most = max(self.most, self.now)
            try:
                return super().send(batch, timeout)
            finally:
                with self.lock:
                    self.now -= len(batch)

    target = Counting()
    settings = settings_for(valkey.url, target)
    with Client(settings=settings) as client:
        client.put_policy(Policy(name="p", match="m.*", max_in_flight=3, per="policy"))
        with RunningNode(settings) as running:
            for n in range(60):
                client.schedule(Message(topic=f"m.{n % 3}", body=n, delay_time=0))
            eventually(lambda: len(target.deliveries) == 60, "all went")
            assert running.node._lease_thread._thread is not None
    assert target.most == 3
    assert valkey.admin.zcard("delayq:slots:policy/p") == 0, "who stops gives back what it has"
