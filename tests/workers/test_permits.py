"""What nodes get of limits that they share: never too much, each its share, and nothing from former policies."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from delayq import Client, Message
from delayq.base.errors import StoreUnavailable
from delayq.domain.policies import Bucket, Policies, Policy, Slots
from delayq.store import commands
from delayq.store.commands import Granted
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from tests.protocol.world import NodeClock
from tests.support.amounts import amount
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.one_queue import OneQueue
from tests.workers.test_limits import Worlds, bounded, in_a_cluster, limit, live
from workers.limits.asking import NodeLimits, _Asker
from workers.limits.limit import IDLE, Limit, Listener
from workers.limits.rate import SHORTEST_LIFE, VALID, RateLimit, life_and_burst
from workers.limits.slots import BESIDES, SlotLimit
from workers.queue.in_flight import InFlight
from workers.queue.pull import Pulling

LOST = StoreUnavailable("the reply was lost")


class Backlog:
    """A queue of a node that always has messages parked, and some in memory."""

    def __init__(self, world: OneQueue, policies: Policies, topic: str = "g.t", count: int = 500) -> None:
        clock = NodeClock(world)
        self.limits = NodeLimits(world.store, clock, test_now=lambda: world.now)
        self.policies, self.topic, self.count = policies, topic, count
        self.limit = self.limits.of(topic, policies, 1_000)[0]
        self.world = world
        self.sent: list[int] = []
        self.looks_at = 0

    def limits_have_more(self, limits: Sequence[Limit]) -> None:
        """It looks at each step."""

    def waits_for(self, limit: Limit) -> int:
        return self.count

    def begin(self) -> int:
        """As many sends as may; when they began is noted."""
        now = self.world.elapsed
        (self.limit,) = self.limits.of(self.topic, self.policies, 1_000)
        count = self.limit.begin(self.count, 1_000, now)
        wait(self.limit, self, now)
        self.sent += [now] * count
        return count


def wait(limit: Limit, queue: Listener, now: int) -> None:
    """The queue waits for its next turn."""
    limit.end_turn(queue)
    limit.turn(queue, now, appends=False)


def policies_of(version: int = 1, **fields: Any) -> Policies:
    return Policies(f"{version:010}-0", policies={"p": Policy(name="p", match="g.*", **fields)})


def together(world: OneQueue, queues: list[Backlog], ms: int, step: int = 5) -> None:
    """Let so much time pass. A queue looks when its limit asks, and now and then."""
    end = world.elapsed + ms
    while world.elapsed < end:
        for queue in queues:  # always in this order
            if world.elapsed >= queue.looks_at:
                wait = queue.limits.tick()
                queue.begin()
                queue.looks_at = world.elapsed + min(wait, 50)
        world.advance(step)


# -- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "burst"), [(2, 2), (10, 10), (20, 20), (50, 1), (200, 200)])
def test_each_node_with_a_backlog_gets_its_share_of_a_rate(worlds: Worlds, rate: int, burst: int) -> None:
    random.seed(rate)
    world = worlds()
    queues = [Backlog(world, policies_of(rate=rate, burst=burst)) for _ in range(3)]
    together(world, queues, 18_000)
    times = sorted(at for queue in queues for at in queue.sent)
    assert len(times) >= 0.93 * rate * 18
    assert bounded(times, rate, max(burst, 1 + rate * 15 // 100))
    for begin in range(4_000, 8_000, 1_000):
        shares = [len([at for at in queue.sent if begin <= at < begin + 10_000]) for queue in queues]
        assert min(shares) >= 0.5 * sum(shares) / 3, f"from {begin} on: {shares}"


def test_a_node_that_asks_exactly_when_it_is_told_to_would_take_all(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(self: RateLimit, granted: Granted, asked_at: int) -> float:
        self._short_until = asked_at + 2_000
        return max(100, granted.wait)

    monkeypatch.setattr(RateLimit, "_pause", at_once)
    with pytest.raises(AssertionError):
        test_each_node_with_a_backlog_gets_its_share_of_a_rate(worlds, 10, 10)


def use_of_slots(world: OneQueue, most: int, lasts: int) -> tuple[float, list[int]]:
    """What part of the slots three nodes use that always have more to send, in 15 s, and how much each has sent."""
    queues = [Backlog(world, policies_of(max_in_flight=most)) for _ in range(3)]
    sends: list[tuple[int, Backlog]] = []
    used = 0
    began = world.elapsed
    while (now := world.elapsed) < began + 15_000:
        for queue in random.sample(queues, 3):
            queue.limits.tick()
            for one in [one for one in sends if one[1] is queue and one[0] <= now]:
                sends.remove(one)
                queue.limit.end(1, now)
            sends += [(now + random.randint(lasts // 2, lasts * 3 // 2), queue) for _ in range(queue.begin())]
        assert len(sends) <= most
        used += len(sends)
        world.advance(5)
    return used * 5 / 15_000 / most, [len(queue.sent) for queue in queues]


@pytest.mark.parametrize(("most", "lasts"), [(3, 30), (1, 30), (20, 50), (3, 400)])
def test_no_node_starves_while_others_have_slots_and_few_are_unused(worlds: Worlds, most: int, lasts: int) -> None:
    random.seed(7)
    used, sent = use_of_slots(worlds(), most, lasts)
    assert min(sent) >= sum(sent) / 3 * 0.5
    assert used >= 0.75


def test_a_node_that_gave_back_and_took_slots_in_one_request_would_let_the_others_starve(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotLimit, "_contended", property(lambda self: False, lambda self, value: None), raising=False)
    random.seed(7)
    _, sent = use_of_slots(worlds(), 3, 30)
    assert min(sent) < sum(sent) / 3 * 0.5


@pytest.mark.parametrize(("most", "lasts"), [(20, 50), (20, 400), (9, 30)])
def test_a_node_that_is_alone_leaves_few_slots_unused(worlds: Worlds, most: int, lasts: int) -> None:
    random.seed(7)
    world = worlds()
    queue = Backlog(world, policies_of(max_in_flight=most))
    sends: list[int] = []
    used = 0
    for now in range(0, 5_000, 4):
        queue.limits.tick()
        ended = [at for at in sends if at <= now]
        sends = [at for at in sends if at > now]
        queue.limit.end(len(ended), now)
        sends += [now + random.randint(lasts // 2, lasts * 3 // 2) for _ in range(queue.begin())]
        used += len(sends)
        world.advance(4)
    assert used * 4 / 5_000 / most >= 0.9


# -- never too much --------------------------------------------------------------------------------------------------


class Lossy:
    """Some replies to who asks for permits are lost, after or before Redis had the question."""

    keys = KEYS

    def __init__(self, store: Any, lost: Collection[int] = range(2, 400, 7), away: Collection[int] = ()) -> None:
        self.store, self.count, self.lost, self.away = store, 0, lost, away

    def server_of(self, key: str) -> None:
        return None

    def run_many(self, wanted: list[Any]) -> list[Any]:
        self.count += 1
        if self.count in self.away:
            return [LOST] * len(wanted)
        answers: list[Any] = self.store.run_many(wanted)
        return [LOST] * len(wanted) if self.count in self.lost else answers


def keep_to_a_limit(worlds: Worlds, kind: str, *, wrong_clock: bool = False) -> bool:
    """Whether one owner, and another after it, keep to a limit together, though replies are lost and the first one is reset."""
    world = worlds()
    hands = [world.take_over()]
    policy: dict[str, Any] = {"rate": 40, "burst": 40} if kind == "rate" else {"maxInFlight": 3}
    limit(world, **policy)
    world.add_many([f"g{n:03}" for n in range(160)], at=0)
    if wrong_clock:
        hands[0].limits._test_now = lambda: world.now + world.elapsed * 7 // 10
    else:
        hands[0].limits._store = Lossy(world.store, away=range(5, 400, 7))  # type: ignore[assignment]
    most = 3 if kind == "slots" else 10**9
    try:
        times = [at for at, _ in live(hands[0], 1_500, lasts=30, most=most)]
        hands[0].job.failed()
        hands.append(world.take_over(node=2))
        hands[1].policies.current = hands[0].policies.current
        times += [at for at, _ in live(hands[1], 1_500, lasts=30, most=most)]
    except AssertionError:  # more at a time
        return False
    assert len(times) >= 60
    return kind == "slots" or bounded(times, 40, 40)


@pytest.mark.parametrize("kind", ["rate", "slots"])
def test_two_nodes_together_keep_to_a_limit_with_lost_replies_and_resets(worlds: Worlds, kind: str) -> None:
    assert keep_to_a_limit(worlds, kind)


@pytest.mark.parametrize("mistake", ["the node's clock", "a limit of each request", "sent without a permit"])
@pytest.mark.parametrize("kind", ["rate", "slots"])
def test_each_mistake_would_be_seen(worlds: Worlds, monkeypatch: pytest.MonkeyPatch, kind: str, mistake: str) -> None:
    if kind == "slots" and mistake == "the node's clock":
        pytest.skip("slots are taken for so long that it does not matter")
    if mistake == "a limit of each request":
        numbers = count(1)

        def elsewhere(ask: Callable[..., Any], keys: Any, requests: Any, **more: Any) -> Any:
            return ask(keys, [structs.replace(one, name=f"{one.name}{next(numbers)}") for one in requests], **more)

        for ask in (commands.spend_all, commands.take_slots):
            monkeypatch.setattr(commands, ask.__name__, partial(elsewhere, ask))
    if mistake == "sent without a permit":
        monkeypatch.setattr(InFlight, "_admit", lambda self, share, batch: batch)
    assert not keep_to_a_limit(worlds, kind, wrong_clock=mistake == "the node's clock")


@pytest.mark.parametrize("mistake", [False, True])
@pytest.mark.parametrize(("rate", "burst"), [(5_000, 5_000), (100, 10), (50, 1), (0.5, 3)])
def test_never_more_than_the_burst_is_granted_and_valid(
    monkeypatch: pytest.MonkeyPatch, rate: float, burst: int, mistake: bool
) -> None:
    random.seed(3)
    limit = RateLimit(Bucket("t:x", rate, burst), KEYS, lambda limit, at: None, lambda version: None)
    if mistake:  # the whole burst at once, and what comes while it is valid
        limit._burst = max(burst, 1 + rate * SHORTEST_LIFE / VALID / 1_000)
    free, most, total, at = 0.0, 0, 0, 0
    valid: list[tuple[int, int]] = []
    waits = Waits(100_000)
    each = 1_000 / rate
    for now in range(0, 60_000, 10):
        wait(limit, waits, now)
        limit._pace, limit._pace_at = 100_000, now  # it would ask for no more than it uses
        if now < at:
            continue
        if limit.next_request(now)[0] is not None:
            used = min(max(free - now, 0), limit._burst * each)
            count = min(limit._asked, int((limit._burst * each - used) / each + 1e-6))
            free = now + used + count * each
            at = limit.take_answer(Granted(count, 1), now)[0] or 0
            valid.append((now + limit._life, count))
            total += count
        valid = [(until, count) for until, count in valid if until > now]
        most = max(most, sum(count for _, count in valid))
    assert (most <= max(burst, 1 + rate * SHORTEST_LIFE / VALID / 1_000)) is not (mistake and rate > 1)
    assert total >= 0.93 * 60 * rate


class PlainBucket:
    """A token bucket that is full at first. `spend` returns whether there was a token; 1e-6 is for rounding."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.has, self.at = burst, 0

    def spend(self, now: int) -> bool:
        self.has = min(self.burst, self.has + (now - self.at) * self.rate / 1_000) - 1
        self.at = now
        return self.has >= -1e-6


@given(
    rate=st.one_of(st.floats(0.01, 20), st.integers(1, 5_000)),
    burst=st.one_of(st.integers(1, 5), st.integers(1, 5_000)),
    steps=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 20), st.floats(0, 1)), min_size=1, max_size=60),
)
@example(rate=2.0, burst=1, steps=[(0, 1, 1.0), (500, 1, 0.0), (500, 1, 0.0)])
@example(rate=5.0, burst=2, steps=[(399, 1, 1.0), (0, 9, 0.0)])
@settings(max_examples=amount(200, 5_000), deadline=None)
def test_whenever_permits_are_used_no_more_are_sent_than_by_a_plain_token_bucket(
    rate: float, burst: int, steps: list[tuple[int, int, float]]
) -> None:
    """A step asks some ms after the one before it for so many permits, and uses them after this part of their life."""
    life, in_redis = life_and_burst(Bucket("t:x", rate, burst))
    assert life >= SHORTEST_LIFE
    shared, sends, now = PlainBucket(rate, in_redis), list[int](), 1_000_000
    shared.at = now
    for wait, wanted, part in steps:
        now += wait
        shared.has, shared.at = min(in_redis, shared.has + wait * rate / 1_000), now
        granted = min(wanted, math.floor(shared.has + 1e-6))
        shared.has -= granted
        sends += [now + int(part * (life - 1))] * granted
    plain = PlainBucket(rate, max(burst, 1 + 0.15 * rate))
    assert all(plain.spend(at) for at in sorted(sends))


class Waits:
    """A listener with so many messages."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def limits_have_more(self, limits: Sequence[Limit]) -> None: ...

    def waits_for(self, limit: Limit) -> int:
        return self.count


def test_what_a_release_puts_back_grows_no_younger_and_no_older() -> None:
    limit = RateLimit(Bucket("t:x", 100, 100), KEYS, lambda limit, at: None, lambda version: None)
    limit._permits = {315: 3, 400: 40, 750: 8}
    taken = limit.take(42, 300)
    assert taken == [(400, 40), (750, 2)], "none that ends on the way"
    limit.put_back(taken, 39, 300)
    assert limit._permits == {315: 3, 400: 1, 750: 8}
    assert limit._count_permits(401) == 8


def test_what_a_lost_reply_took_is_given_back_and_what_a_killed_owner_had_is_free_again_in_time(
    worlds: Worlds,
) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, maxInFlight=2)
    for n in range(4):
        world.add(f"g{n}", at=0)
    hand.limits._store = Lossy(world.store, lost={1})  # type: ignore[assignment]
    taken = commands.plain("ZCARD", "delayq:slots:g.t", read=int)
    live(hand, 500, lasts=10_000)
    assert (hand.sending, world.store.run(taken)) == ([], 2)
    live(hand, 1_500, lasts=10_000, most=2)
    assert (hand.sending, world.store.run(taken)) == (["g0", "g1"], 2)
    other = world.take_over(node=2)  # the first one is gone, with what it was sending
    other.policies.current = hand.policies.current
    life = other.senders["general"].longest + BESIDES
    live(other, life - 2_000, most=0)
    assert len(live(other, 2_500, lasts=10, most=2)) == 4
    assert world.stats().counters["delivered"] == 4


def test_no_send_begins_that_may_last_longer_than_its_slot() -> None:
    limit = SlotLimit(Slots("x", 2), KEYS, lambda limit, at: None)
    limit.update(Slots("x", 2), "", 1_000)
    wait(limit, Waits(2), 0)
    limit.next_request(0)
    limit.take_answer(2, 0)
    assert limit.begin(1, 1_000 + BESIDES + 1, 0) == 0
    assert limit.begin(1, 1_000, 0) == 1


# -- trips -----------------------------------------------------------------------------------------------------------


class Far:
    """A Redis to which a trip takes so many ms."""

    keys = KEYS

    def __init__(self, world: OneQueue, trip: int) -> None:
        self._world, self._store, self._trip = world, world.store, trip

    def server_of(self, key: str) -> None:
        return None

    def run_many(self, wanted: Any) -> Any:
        self._world.advance(self._trip // 2)
        answers = self._store.run_many(wanted)
        self._world.advance(self._trip - self._trip // 2)
        return answers


@pytest.mark.parametrize(
    ("rate", "burst", "trip"), [(50, 1, 0), (50, 1, 10), (50, 5, 10), (400, 10, 10), (100, 100, 120), (100, 100, 200)]
)
def test_a_small_burst_and_a_long_trip_leave_about_the_rate(worlds: Worlds, rate: int, burst: int, trip: int) -> None:
    random.seed(1)
    world = worlds()
    hand = world.take_over()
    limit(world, rate=rate, burst=burst)
    for n in range(240):
        world.add(f"{n:03}", at=0)
    far: Any = Far(world, trip)
    hand.store = hand.limits._store = far
    times: list[int] = []
    while world.elapsed < 3_000 and len(times) < 240:
        for move in (hand.limits.tick, hand.tick):
            before = len(hand.senders["general"].on_submit)
            move()
            times += [world.elapsed] * (len(hand.senders["general"].on_submit) - before)
            hand.answer_all()
        world.advance(5)
    part = 0.8 if trip < 200 else 0.1
    assert len(times) >= min(240, part * rate * 2)
    assert bounded(times, rate, max(burst, 1 + rate * 15 // 100)), "a burst that is smaller counts as that"


def test_a_release_that_stood_in_a_redis_that_stood_still_appends_by_no_permit_that_has_ended(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appended(behind: int = 0) -> int:
        world = worlds()
        hand = world.take_over()
        in_a_cluster(hand)
        hand.job._clock.error = -behind  # type: ignore[attr-defined]  # the world's clock has one
        limit(world, match="s.t", rate=100, burst=100)
        world.add("first", topic="s.t", at=0)
        world.advance(behind)
        live(hand, 100)
        before = len(world.stream("s.t"))
        world.add_many([f"{n:02}" for n in range(20)], topic="s.t", at=0)
        hand.settle()
        hand.limits.tick()
        far: Any = Far(world, 4_000)
        hand.store = far
        hand.tick()
        return len(world.stream("s.t")) - before

    def by_the_clock_of_redis(self: Far, wanted: Any) -> Any:
        self._world.advance(self._trip)
        then = [structs.replace(one, args=(one.args[0], self._world.now, *one.args[2:])) for one in wanted]
        return self._store.run_many(then)

    monkeypatch.setattr(Far, "run_many", by_the_clock_of_redis)
    assert appended() == 0
    assert appended(behind=450) == 0
    monkeypatch.setattr(Pulling, "by_redis", lambda self, at: 10**15)
    assert appended() > 0, "it would be seen"


def test_what_a_bucket_saved_while_its_server_stood_still_is_not_spent_on_requests_that_are_too_old(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stands_still(self: Far, wanted: Any) -> Any:
        self._world.advance(self._trip)
        return self._store.run_many([structs.replace(one, args=(self._world.now, *one.args[1:])) for one in wanted])

    def sent_after_it() -> int:
        world = worlds()
        hand = world.take_over()
        limit(world, rate=50, burst=50)
        world.add_many([f"{n:03}" for n in range(200)], at=0)
        live(hand, 2_000)
        (asker,) = hand.limits._askers.values()
        asker._store = Far(world, 1_000)  # type: ignore[assignment]
        while world.elapsed < 3_000:
            hand.limits.tick()
            world.advance(10)
        asker._store = world.store
        return len(live(hand, 60))

    monkeypatch.setattr(Far, "run_many", stands_still)
    assert sent_after_it() >= 25
    never = property(lambda self: None, lambda self, ahead: None)
    monkeypatch.setattr(_Asker, "_server_ahead", never, raising=False)
    assert sent_after_it() < 12, "it would be seen"


# -- former policies -------------------------------------------------------------------------------------------------


def test_a_lowered_rate_counts_at_once(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent() -> int:
        world = worlds()
        hand = world.take_over()
        limit(world, rate=1_000, burst=1_000)
        world.add_many([f"a{n:02}" for n in range(60)], at=0, every=5)
        live(hand, 300)
        world.add_many([f"b{n:02}" for n in range(60)], at=310)
        limit(world, rate=1, burst=1)
        world.advance(10)
        return len(live(hand, 1_000))

    assert sent() <= 2
    real = RateLimit._use

    def keeping(self: RateLimit, bucket: Bucket) -> None:
        if hasattr(self, "_bucket"):
            self._bucket = bucket
        else:
            real(self, bucket)

    monkeypatch.setattr(RateLimit, "_use", keeping)
    assert sent() > 20, "it would be seen"


@pytest.mark.parametrize("mistake", [False, True])
def test_a_node_that_goes_by_a_former_rate_gets_nothing_and_changes_nothing(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, mistake: bool
) -> None:
    """I10: Requests that name former policies change nothing, and the node reads the new ones."""
    if mistake:
        written = commands.Spending.written.fget  # type: ignore[attr-defined]
        former = property(lambda self: written(structs.replace(self, version="")))
        monkeypatch.setattr(commands.Spending, "written", former)
    random.seed(2)
    world = worlds()
    told: list[str] = []
    still = Backlog(world, policies_of(1, rate=200, burst=200))
    still.limits._outdated = told.append
    still.limits.rate("g.t", still.policies)._outdated = told.append  # type: ignore[union-attr]
    other = Backlog(world, policies_of(1, rate=200, burst=200))
    together(world, [still, other], 1_000)
    other.policies = policies_of(2, rate=10, burst=10)  # the first one stands still meanwhile
    together(world, [other], 3_000)
    before, began = len(still.sent), world.elapsed
    together(world, [still, other], 3_000)
    times = sorted(at for at in still.sent[before:] + other.sent if at >= began)
    assert (bounded(times, 10, 10) and len(still.sent) == before) is not mistake
    if not mistake:
        assert set(told) == {"0000000002-0"}
        still.policies = other.policies  # it has read them
        together(world, [still, other], 12_000)
        assert len(still.sent) - before >= 0.5 * 10 * 12 / 2


# -- who asks --------------------------------------------------------------------------------------------------------


def test_a_message_that_comes_alone_does_not_use_up_what_was_saved(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=0.1, burst=50)
    world.add("first", at=0)
    world.add_many([f"{n:02}" for n in range(40)], at=2_000)
    world.advance(1)
    assert len(live(hand, 2_500)) - 1 == 40


def test_a_request_that_came_too_late_is_made_again_at_once() -> None:
    limit = RateLimit(Bucket("t:x", 10_000_000, 10_000_000), KEYS, lambda limit, at: None, lambda version: None)
    limit.listen(Waits(), 0)
    assert limit.next_request(0)[0] is not None
    again, _ = limit.take_answer(Granted(0, 0), 0)
    assert again is not None
    assert again <= 100


class TwoServers:
    """Keys lie on either of two servers; one of them hangs until it is released."""

    keys = KEYS

    def __init__(self, store: Any) -> None:
        self.store, self.hangs, self.released = store, threading.Event(), threading.Event()

    def server_of(self, key: str) -> Any:
        return "ill" if key.endswith("ill") else "well"

    def run_many(self, wanted: Any) -> Any:
        if any(key.endswith("ill") for one in wanted for key in one.keys):
            self.hangs.set()
            self.released.wait(PATIENCE)
            return [LOST] * len(wanted)
        return self.store.run_many(wanted)


def test_a_server_that_hangs_stops_only_the_limits_that_lie_there(valkey: ServerUnderTest, worlds: Worlds) -> None:
    from delayq.base.clock import SystemClock

    store: Any = TwoServers(worlds().store)
    limits = NodeLimits(store, SystemClock())
    begun = Counter[str]()

    class Sender(Waits):
        def limits_have_more(self, limits: Sequence[Limit]) -> None:
            for one in limits:
                begun[one.name] += one.begin(1, 1_000, SystemClock().monotonic())

    policies = policies_of(rate=1_000)
    try:
        for topic in ("g.ill", "g.well"):
            (one,) = limits.of(topic, policies, 1_000)
            one.listen(Sender(1), SystemClock().monotonic())
            if topic == "g.ill":
                assert store.hangs.wait(PATIENCE)
        eventually(lambda: begun["t:g.well"] > 0, "the other server was asked")
        assert begun["t:g.ill"] == 0
    finally:
        store.released.set()
        limits.stop(60_000)


def test_limits_that_wait_for_their_turn_at_a_slow_server_are_not_short_and_those_of_a_silent_one_are(
    worlds: Worlds,
) -> None:
    class Slow:
        """A server that takes a while for each packet."""

        keys = KEYS

        server_of = staticmethod(lambda key: None)

        def run_many(self, wanted: list[Any]) -> list[Any]:
            world.advance(200)
            during.append(any(one.is_short(world.elapsed) for one in waiting))
            world.advance(200 if silent else 0)
            during.append(any(one.is_short(world.elapsed) for one in waiting))
            return world.store.run_many(wanted)

    world, store = worlds(), Slow()
    limits, policies = NodeLimits(store, NodeClock(world), test_now=lambda: world.now), policies_of(max_in_flight=5)  # type: ignore[arg-type]
    waiting = [limits.of(f"g.{topic}", policies, 1_000)[0] for topic in range(1_000)]
    during, silent = list[bool](), False
    for one in waiting:
        one.listen(Waits(1), world.elapsed)
    for _ in range(4):
        limits.tick()
    assert world.elapsed >= 800
    assert during == [False] * 8
    silent = True
    limits.tick()
    assert during[8:] == [False, True]


@pytest.mark.parametrize("fields", [{"rate": 10}, {"max_in_flight": 5}])
def test_a_limit_that_was_made_just_now_is_not_forgotten_before_its_messages_are_admitted(
    worlds: Worlds, fields: dict[str, int]
) -> None:
    world = worlds()
    limits, policies = NodeLimits(world.store, NodeClock(world), test_now=lambda: world.now), policies_of(**fields)
    made: list[Limit] = []
    for topic in ("g.first", "g.second", "g.third"):
        made += limits.of(topic, policies, 1_000)
        world.advance(IDLE * 2 // 3)
    assert limits.of("g.third", policies, 1_000) == (made[2],)
    assert limits.of("g.second", policies, 1_000) == (made[1],)
    assert limits.of("g.first", policies, 1_000) != (made[0],), "it was unused for long"


def test_a_thread_that_could_not_be_started_is_started_later(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    world = worlds()
    limits = NodeLimits(world.store, NodeClock(world))
    with monkeypatch.context() as planted:
        planted.setattr(threading.Thread, "start", fails)
        (one,) = limits.of("g.t", policies_of(rate=10), 1_000)
        one.listen(Waits(), 0)
    (asker,) = limits._askers.values()
    before = asker.thread
    monkeypatch.setattr(_Asker, "_run", lambda self: None)
    limits.start_again()
    assert (before, asker.thread is None) == (None, False)


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
            assert running.node._limits._askers
    assert target.most == 3
    assert valkey.admin.zcard("delayq:slots:policy/p") == 0, "who stops gives back what it has"
