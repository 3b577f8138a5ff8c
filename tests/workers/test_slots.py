"""Of a topic with `maxInFlight` no more than so many messages are sent at a time, whoever owns the queues."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest

from delayq import Client, Message
from delayq.errors import StoreUnavailable
from delayq.policies import Policy, Slots
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import queue_keys
from delayq.targets import Result
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.one_queue import Hand, OneQueue
from workers.node.leases import _take
from workers.queue.grants import Leases
from workers.queue.in_flight import InFlight
from workers.queue.slots import BESIDES, JobSlots, SlotPool
from workers.sending.forwarder import _Group, _Send
from workers.sending.message import LOOK_AGAIN

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
        monkeypatch.setattr(InFlight, "_with_slots", lambda self, share, batch: (batch, []))
    with pytest.raises(AssertionError):
        by_two_nodes(worlds, faults=True)


def by_queues_of_three_nodes(world: OneQueue, most: int, lasts: int) -> Counter[int]:
    """How many messages each of twelve queues has sent after 20 s, which always have more to send, four by each node."""
    slots = Slots("p", most)
    pools = [SlotPool(lambda: None) for _ in range(3)]
    jobs = [JobSlots(pools[n % 3], lambda: None) for n in range(12)]
    began, sent = world.elapsed, Counter[int]()
    sends: list[tuple[int, JobSlots, Any]] = []
    while (now := world.elapsed) < began + 20_000:
        for pool in pools:
            for ask in pool.asks(now)[0]:
                pool.taken(ask, world.store.run(_take(ask, world.now)), now)
        for at, job, slot in sends:
            if at <= now:
                job.give_back([slot], now)
        sends = [one for one in sends if one[0] > now]
        for n, job in enumerate(jobs):
            job.want({slots: (500, (sent[n], b""))}, 2_000, now)
            taken = job.take(slots, job.may_bring_back(slots, now), 2_000, now)
            sent[n] += len(taken)
            sends += [(now + lasts, job, slot) for slot in taken]
        assert len(sends) <= most
        world.advance(10)
    return sent


@pytest.mark.parametrize(("most", "lasts"), [(3, 30), (1, 30), (20, 50), (3, 400)])
def test_no_queue_and_no_node_starves_while_others_have_slots(worlds: Worlds, most: int, lasts: int) -> None:
    random.seed(7)
    sent = by_queues_of_three_nodes(worlds(), most, lasts)
    assert min(sent[n] for n in range(12)) >= sent.total() / 12 * 0.6
    assert sent.total() >= 20_000 * most / lasts * 0.75, "and few slots stand idle"


def test_a_node_that_gave_back_and_took_in_one_call_would_let_the_others_starve(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = SlotPool._ask

    def at_once(self: SlotPool, known: Any, wanted: int, now: int) -> Any:
        known.short = False
        return ask(self, known, wanted, now)

    monkeypatch.setattr(SlotPool, "_ask", at_once)
    random.seed(7)
    sent = by_queues_of_three_nodes(worlds(), 3, 30)
    assert 0 in [sent[n] for n in range(12)]


def use_of(world: OneQueue, most: int, lasts: int) -> tuple[float, float]:
    """What part of the slots a node uses that always has more to send, in 5 s alone; and what it has, of what it would have if
    both had as many, from a second on after another node has come that wants as many."""
    slots = Slots("p", most)
    pools = [SlotPool(lambda: None), SlotPool(lambda: None)]
    jobs = [JobSlots(pool, lambda: None) for pool in pools]
    sends: list[tuple[int, int, Any]] = []
    alone, beside = 0, Counter[int]()
    began = world.elapsed
    while (passed := (now := world.elapsed) - began) < 15_000:
        for n, job in enumerate(jobs[: 1 + (passed >= 5_000)]):
            for ask in pools[n].asks(now)[0]:
                pools[n].taken(ask, world.store.run(_take(ask, world.now)), now)
            for one in [one for one in sends if one[1] == n and one[0] <= now]:
                sends.remove(one)
                job.give_back([one[2]], now)
            job.want({slots: (500, (0, b""))}, 2_000, now)
            for slot in job.take(slots, job.may_bring_back(slots, now), 2_000, now):
                sends.append((now + random.randint(lasts // 2, lasts * 3 // 2), n, slot))
        assert len(sends) <= most
        alone += len(sends) * (passed < 5_000)
        if passed >= 6_000:
            beside.update(n for _, n, _ in sends)
        world.advance(4)
    return alone * 4 / 5_000 / most, 2 * beside[1] / beside.total()


@pytest.mark.parametrize(("most", "lasts"), [(20, 50), (20, 400), (9, 30)])
def test_a_node_that_is_alone_leaves_few_slots_idle_and_one_that_comes_gets_as_many(
    worlds: Worlds, most: int, lasts: int
) -> None:
    random.seed(7)
    used, share = use_of(worlds(), most, lasts)
    assert used >= 0.94
    assert 0.7 <= share <= 1.3


# -- what is next waits in memory ------------------------------------------------------------------------------------------


def with_offers(worlds: Worlds, count: int = 30) -> Hand:
    """Two of so many messages are being sent, and the next ones wait for their slots."""
    world = worlds()
    hand = world.take_over()
    at_a_time(world, 2)
    for n in range(count):
        world.add(f"g{n:02}", at=0)
    live([hand], 300, 20, 2)
    while len(hand.sending) < 2:
        live([hand], 10, 20, 2)
    assert offered(hand), "some wait in memory"
    return hand


def offered(hand: Hand) -> list[str]:
    pool = hand.job._grants.slots._pool
    return [offer.message.id for known in pool.known.values() for offer in known.offers]


def test_a_slot_that_comes_free_goes_to_the_next_message_before_its_queue_is_looked_at(worlds: Worlds) -> None:
    hand = with_offers(worlds)
    following = offered(hand)
    assert following == sorted(following)
    assert following[0] > max(hand.sending)
    before = hand.sending[1:]
    hand.answer(hand.sending[0])
    assert hand.sending == [*before, following[0]]
    live([hand], 3_000, 20, 2)
    assert sorted(hand.sent) == [f"g{n:02}" for n in range(30)], "each went once"
    assert not hand.job.in_flight.messages


def paused(hand: Hand) -> None:
    hand.world.pause("g.t")
    hand.settle()


def reset(hand: Hand) -> None:
    hand.job.failed()


def stopping(hand: Hand) -> None:
    hand.job.stop()
    hand.tick()


def stale(hand: Hand) -> None:
    hand.world.advance(LOOK_AGAIN + 1)


def held_for_broken(hand: Hand) -> None:
    for n in range(3):
        hand.forwarders["general"].circuit.sent(False, 0, [f"other-{n}"], False, "down")


TAKES_BACK = {"paused": paused, "reset": reset, "stopping": stopping, "stale": stale, "broken": held_for_broken}


@pytest.mark.parametrize("what", TAKES_BACK)
def test_what_waits_for_a_slot_is_not_sent_once_its_owner_may_not_send_it(worlds: Worlds, what: str) -> None:
    hand = with_offers(worlds)
    TAKES_BACK[what](hand)
    for id in hand.sending:
        hand.answer(id, Result.unavailable("down"))
    assert hand.sending == []


@pytest.mark.parametrize("what", ["paused", "reset", "stopping"])
def test_a_job_that_does_not_take_back_what_waits_for_a_slot_would_be_seen(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(JobSlots, "take_back", lambda self, which=None: [])
    with pytest.raises(AssertionError):
        test_what_waits_for_a_slot_is_not_sent_once_its_owner_may_not_send_it(worlds, what)


def test_what_has_waited_for_a_slot_for_long_is_looked_at_again_and_a_cancelled_one_is_gone(worlds: Worlds) -> None:
    hand = with_offers(worlds)
    world, gone = hand.world, offered(hand)[0]
    world.cancel(gone)
    hand.world.advance(LOOK_AGAIN + 1)
    live([hand], 4_000, 20, 2)
    assert sorted([*hand.sent, gone]) == [f"g{n:02}" for n in range(30)]


def test_a_send_that_takes_long_has_none_wait_in_memory(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    at_a_time(world, 2)
    for n in range(30):
        world.add(f"g{n:02}", at=0)
    live([hand], 2_000, 450, 2)
    assert len(offered(hand)) <= 2
    live([hand], 2_000, 10_000, 2)
    assert offered(hand) == []


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


def test_a_topic_that_has_few_grants_keeps_no_slots_from_others_that_share_them(worlds: Worlds) -> None:
    random.seed(7)  # some seeds give the slow topic two or three slots in this time, and never more than its rate
    leases, made = Leases(), [worlds(), worlds()]
    hands = []
    for queue, world in enumerate(made):
        world.keys = queue_keys(queue)
        hands.append(world.take_over(node=queue + 1, leases=leases))
    shared = Change("policy:p", '{"match": "g.*", "maxInFlight": 2, "per": "policy"}')
    made[0].change(shared, Change("limit:g.slow", '{"rate": 1}'))
    hands[1].book.current = policies = hands[0].book.current
    made[1].store.run(commands.apply_policies(made[1].keys, policies.version, policies.paused, now=made[1].now))
    for n in range(60):
        made[0].add(f"g-slow{n:02}", topic="g.slow", at=0)
        made[1].add(f"g-fast{n:02}", topic="g.fast", at=1)
    began, ended = dict[str, int](), Counter[str]()
    while made[0].elapsed < 6_000:
        hands[0].leases.tick()
        for hand in hands:
            hand.settle()
            for id in hand.sending:
                if made[0].elapsed - began.setdefault(id, made[0].elapsed) >= 100:
                    hand.answer(id)
                    ended[id[2:6]] += 1
            hand.settle()
        assert len(sending(*hands)) <= 2
        for world in made:
            world.advance(10)
    assert ended["fast"] == 60
    assert 4 <= ended["slow"] <= 7


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
    settings = settings_for(valkey.url, target, redis_timeout=int(PATIENCE * 1000))
    with Client(settings=settings) as client:
        client.put_policy(Policy(name="p", match="m.*", max_in_flight=3, per="policy"))
        with RunningNode(settings) as running:
            for n in range(60):
                client.schedule(Message(topic=f"m.{n % 3}", body=n, delay_time=0))
            eventually(lambda: len(target.deliveries) == 60, "all went")
            assert running.node._lease_thread._thread is not None
    assert target.most == 3
    assert valkey.admin.zcard("delayq:slots:policy/p") == 0, "who stops gives back what it has"
