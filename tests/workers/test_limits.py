"""A limited topic goes no faster and no more at a time over all owners, earliest due first, and nothing else waits for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from delayq import Client, Message
from delayq.domain.routes import Route
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import KEYS
from delayq.targets import OK, Result
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.one_queue import GENERAL, OTHER, Hand, OneQueue
from workers.limits.asking import NodeLimits
from workers.queue.share import Share
from workers.sending.message import LOOK_AGAIN
from workers.sending.sender import Sender

Worlds = Callable[..., OneQueue]
DOWN = Result.unavailable("down")
#: Limits that never bind.
AMPLE: list[dict[str, Any]] = [{"rate": 100_000}, {"maxInFlight": 1_000}, {"rate": 100_000, "maxInFlight": 1_000}]
#: Limits of about 20 messages a second, where a send takes 100 ms.
TIGHT: list[dict[str, Any]] = [
    {"rate": 20, "burst": 10},
    {"maxInFlight": 2},
    {"rate": 20, "burst": 10, "maxInFlight": 2},
]


def limit(world: OneQueue, match: str = "g.t", **policy: object) -> None:
    fields = ", ".join(f'"{name}": {value}' for name, value in {"match": f'"{match}"', **policy}.items())
    world.change(Change("policy:p", f"{{{fields}}}"))


def live(
    hands: Hand | list[Hand],
    ms: int,
    answer: Callable[[str], Result] = lambda _: OK,
    lasts: int = 0,
    most: int = 10**9,
    parks: bool = True,
) -> list[tuple[int, str]]:
    """Let so much time pass, while each send takes so long; when each message was sent. No more than `most` of g.* are sent at a
    time, and perhaps nothing `parks`."""
    hands = hands if isinstance(hands, list) else [hands]
    found: list[tuple[int, str]] = []
    world, began = hands[0].world, dict[str, int]()
    end = world.elapsed + ms
    while (now := world.elapsed) < end:
        ended, rounds = True, 0
        while ended or rounds < 3:
            ended, rounds = False, rounds + 1
            for hand in hands:
                hand.limits.tick()
                hand.settle()
            assert len({one for hand in hands for one in hand.sending if one[0] == "g"}) <= most
            assert parks or not any(hand.parked for hand in hands)
            for hand in hands:
                for one in hand.sending:
                    if one not in began:
                        found.append((now, one))
                    if now - began.setdefault(one, now) >= lasts:
                        del began[one]
                        hand.answer(one, answer(one))
                        ended = True
        for hand in hands:
            hand.world.advance(10)
    return found


def waiting(hand: Hand, topic: str = "g.t") -> list[str]:
    """What waits in memory for a limit, in order."""
    lines = [line for one in hand.senders.values() for line in one._lines._lines.values()]
    return [message.id for line in lines for group in line for message in group.batch if message.topic == topic]


def bounded(times: list[int], rate: float, burst: int) -> bool:
    """Whether no time has more than its share and one burst."""
    return all(
        place - first + 1 <= rate * (times[place] - times[first]) / 1_000 + burst
        for first in range(len(times))
        for place in range(first, len(times))
    )


def queues_of(worlds: Worlds, change: Change, *, count: int = 2, nodes: int = 1) -> list[Hand]:
    """The owners of so many queues on so many nodes, under a policy. The queues of a node share its limits and senders."""
    hands: list[Hand] = []
    for queue in range(count):
        world = worlds()
        world.keys = KEYS.queue(queue)
        first = hands[queue % nodes] if queue >= nodes else None
        limits, senders = (first.limits, first.senders) if first is not None else (None, None)
        hands.append(world.take_over(node=queue + 1, limits=limits, senders=senders))
    hands[0].world.change(change)
    policies = hands[0].policies.current
    for hand in hands[1:]:
        hand.policies.current = policies
        world = hand.world
        world.store.run(commands.apply_policies(world.keys, policies.version, policies.paused, now=world.now))
    return hands


# -- what binds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "burst"), [(50, 50), (20, 10), (200, 100)])
def test_what_is_beyond_the_rate_waits_earliest_first_and_other_topics_do_not(
    worlds: Worlds, rate: int, burst: int
) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=rate, burst=burst)
    for n in range(240):
        world.add(f"{n:03}", at=n % 3)
        world.add(f"o{n:03}", topic="o.t", at=n % 3)
    world.advance(5)
    sent = live(hand, 2_000)
    free, bound = ([one for one in sent if (one[1][0] == "o") is other] for other in (True, False))
    assert (len(free), free[-1][0] - free[0][0]) == (240, 0)
    assert bounded([at for at, _ in bound], rate, burst)
    assert min(rate * 2 * 0.93, 240) <= len(bound)
    assert [int(id) % 3 for _, id in bound] == sorted(int(id) % 3 for _, id in bound)
    limit(world, rate=100_000)
    live(hand, 1_000)
    assert world.stats().counters["delivered"] == 480


def test_no_more_are_sent_at_a_time_earliest_first_and_what_is_idle_asks_for_nothing(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, maxInFlight=3)
    for n in range(60):
        world.add(f"g{n:03}", at=n % 3)
        world.add(f"o{n:03}", topic="o.t", at=n % 3)
    world.advance(5)
    live(hand, 3_000, lasts=50, most=3)
    assert {f"o{n:03}" for n in range(60)} <= set(hand.sent[:70])
    bound = [id for id in hand.sent if id[0] == "g"]
    assert len(bound) == world.stats().counters["delivered"] - 60 == 60
    assert [int(id[1:]) % 3 for id in bound] == sorted(int(id[1:]) % 3 for id in bound)
    live(hand, 2_500)
    assert hand.limits.tick() > 1_000
    assert world.store.run(commands.plain("ZCARD", "delayq:slots:g.t", read=int)) == 0


@pytest.mark.parametrize("policy", TIGHT)
def test_two_nodes_share_a_limit_and_all_goes(worlds: Worlds, policy: dict[str, Any]) -> None:
    fields = ", ".join(f'"{name}": {value}' for name, value in policy.items())
    hands = queues_of(worlds, Change("policy:p", f'{{"match": "g.t", {fields}}}'), nodes=2)
    for node, hand in enumerate(hands):
        for n in range(30):
            hand.world.add(f"g{node}{n:02}", at=n % 3)
    sent = live(hands, 6_000, lasts=100, most=policy.get("maxInFlight", 10**9))
    assert sorted(id for _, id in sent) == [f"g{node}{n:02}" for node in range(2) for n in range(30)]
    if "rate" in policy:
        assert bounded([at for at, _ in sent], 20, 10)


def test_a_retry_needs_a_permit_too(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1, burst=1)
    for id in "ab":
        world.add(id, at=0)
    sent = live(hand, 5_500, lambda id: DOWN if world.elapsed < 2_500 else OK)
    times = [at for at, _ in sent]
    assert 4 <= len(times) <= 6
    assert all(second - first >= 800 for first, second in pairwise(times))


@pytest.mark.parametrize("kind", ["rate", "maxInFlight"])
def test_all_topics_of_a_policy_share_its_limit_or_each_has_its_own(worlds: Worlds, kind: str) -> None:
    for per, most in (("policy", 20), ("topic", 40)):
        world = worlds()
        hand = world.take_over()
        limit(world, "*", per=f'"{per}"', **({"rate": 10, "burst": 10} if kind == "rate" else {"maxInFlight": 2}))
        for n in range(50):
            world.add(f"g{n}", at=0)
            world.add(f"o{n}", topic="o.t", at=0)
        sent = live(hand, 1_000, lasts=100)
        assert most * 0.7 <= len(sent) <= most


def test_of_a_policy_and_a_limit_the_slower_counts_and_a_paused_topic_goes_not_at_all(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1_000)
    world.change(Change("limit:g.*", '{"rate": 10}'))
    for n in range(50):
        world.add(f"{n}", at=0)
    assert 14 <= len(live(hand, 1_000)) <= 20
    world.pause("g.*")
    hand.tick()
    assert live(hand, 1_500) == []
    assert hand.limits.tick() > 1_000, "nothing is wanted for it"
    world.pause()
    assert 14 <= len(live(hand, 1_000)) <= 20


@pytest.mark.parametrize("policy", TIGHT)
def test_order_within_a_key_stays(worlds: Worlds, policy: dict[str, Any]) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, **policy)
    for n in range(40):
        world.add(f"{n:02}", at=n // 4, ordering_key=f"k{n % 2}")
    world.advance(20)
    sent = [id for _, id in live(hand, 6_000, lasts=50)]
    assert len(sent) == 40
    for key in (0, 1):
        of_key = [id for id in sent if int(id) % 2 == key]
        assert of_key == sorted(of_key)


# -- what does not bind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", AMPLE)
def test_a_limit_that_does_not_bind_lets_what_comes_pass_without_a_detour(
    worlds: Worlds, policy: dict[str, Any]
) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, **policy)
    for n in range(60):
        for m in range(4):
            world.add(f"{n:03}-{m}", at=n * 10)
    sent = live(hand, 610, parks=False)
    assert len(sent) == 240
    assert all(at <= int(id[:3]) * 10 + 10 for at, id in sent)
    live(hand, 2_500)
    assert hand.limits.tick() > 1_000, "an idle limit asks nothing"


def test_many_topics_with_limits_of_their_own_that_do_not_bind_pass_without_a_detour(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, "g.*", rate=1_000)
    for n in range(280):
        world.add(f"{n:03}", topic=f"g.{n}", at=n // 4)
    sent = live(hand, 100, parks=False)
    assert [id for _, id in sent] == [f"{n:03}" for n in range(280)]


@pytest.mark.parametrize("policy", AMPLE)
def test_what_was_not_asked_for_yet_waits_in_memory_also_until_there_is_no_limit_any_more(
    worlds: Worlds, policy: dict[str, Any]
) -> None:
    for asks in (True, False):
        world = worlds()
        hand = world.take_over()
        limit(world, **policy)
        world.add_many([f"{n:03}" for n in range(40)], at=0)
        hand.settle()
        assert (hand.sent, world.aside(), len(waiting(hand))) == ([], {}, 40)
        if not asks:
            world.change(Change("policy:p", ""))
        sent = [id for _, id in live(hand, 100, parks=False)]
        assert sent == [f"{n:03}" for n in range(40)]


# -- what waits in memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("policy", [{"rate": 5, "burst": 5}, {"maxInFlight": 5}])
def test_a_limited_topic_takes_no_room_from_another_topic_of_its_route(
    worlds: Worlds, away: bool, policy: dict[str, Any]
) -> None:
    world = worlds()
    hand = world.take_over()
    room = hand.senders["general"].room
    limit(world, **policy)
    world.add_many([f"g{n:03}" for n in range(200)], at=0)
    world.add_many([f"s{n:02}" for n in range(40)], topic="s.t", at=10)
    for _ in range(60):
        if not away:  # else its server hangs
            hand.limits.tick()
        hand.run(10)
        assert hand.senders["general"].room >= room - 8
    began = len(hand.sent)
    assert hand.senders["general"].room == room - began
    assert hand.job.in_flight.shares["general"].active == began <= 8
    assert not hand.senders["general"].busy or not hand.senders["general"]._pending - began - len(waiting(hand))
    world.add_many([f"f{n:02}" for n in range(30)], topic="g.free", at=world.elapsed)
    assert [id for id in hand.settle() if id[0] == "f"] == [f"f{n:02}" for n in range(30)]
    assert len(world.stream("s.t")) == 40


def test_the_room_that_a_limited_topic_would_take_is_seen(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "room", property(lambda self: max(0, self._capacity - self._pending)))
    with pytest.raises(AssertionError):
        test_a_limited_topic_takes_no_room_from_another_topic_of_its_route(worlds, True, {"maxInFlight": 5})


def test_how_many_wait_in_memory_is_bounded(worlds: Worlds) -> None:
    """By the window while nobody knows how much there is, and by what goes in a moment once there is too little."""
    world = worlds()
    hand = world.take_over()
    limit(world, "g.*", rate=5, burst=5)
    for topic in range(8):
        world.add_many([f"g{topic}{n:02}" for n in range(40)], topic=f"g.{topic}", at=0)
    hand.settle()
    share: Share = hand.job.in_flight.shares["general"]
    assert 0 < share.limited <= share._most // 2
    live(hand, 1_500)
    for topic in range(8):
        assert len(waiting(hand, f"g.{topic}")) <= 3
    assert sum(world.aside().values()) >= 200


def test_of_a_slow_limit_nothing_waits_in_memory_for_long_so_that_a_caller_can_change_it(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1 / 60)
    world.add_many([f"{n:03}" for n in range(100)], at=0)
    assert len(live(hand, 1_100)) == 1, "those that waited for the first answer are pulled again"
    assert (world.aside(), waiting(hand), len(hand.job.in_flight.messages)) == ({"h:g.t": 99}, [], 0)
    world.cancel("050")
    assert world.deliver_now("070", "g.t", force=True)[0] == "scheduled"
    assert [id for _, id in live(hand, 100)] == ["070"]
    assert [id for _, id in live(hand, 70_000)] == ["001"]


def busy(worlds: Worlds, count: int = 60) -> Hand:
    """Two of so many messages are being sent, and the next ones wait for their slots."""
    world = worlds()
    hand = world.take_over()
    limit(world, maxInFlight=2)
    world.add_many([f"g{n:02}" for n in range(count)], at=0)
    live(hand, 300, lasts=20, most=2)
    while len(hand.sending) < 2:
        live(hand, 10, lasts=20, most=2)
    assert waiting(hand)
    return hand


def test_a_slot_that_comes_free_goes_to_the_next_message_before_its_queue_is_looked_at(worlds: Worlds) -> None:
    hand = busy(worlds)
    following = waiting(hand)
    assert following == sorted(following)
    assert following[0] > max(hand.sending)
    before = hand.sending[1:]
    hand.answer(hand.sending[0])
    assert hand.sending == [*before, following[0]]
    live(hand, 3_000, lasts=20, most=2)
    assert sorted(hand.sent) == [f"g{n:02}" for n in range(60)], "each went once"
    assert not hand.job.in_flight.messages


def paused(hand: Hand) -> None:
    hand.world.pause("g.t")
    hand.settle()


def reset(hand: Hand) -> None:
    hand.job.failed()


def stopping(hand: Hand) -> None:
    hand.job.stop()
    hand.tick()


def fenced(hand: Hand) -> None:
    hand.job._fence(True)
    hand.tick()


def stale(hand: Hand) -> None:
    hand.world.advance(LOOK_AGAIN + 1)


def held_for_broken(hand: Hand) -> None:
    for n in range(3):
        hand.senders["general"].circuit.sent(False, 0, [f"other-{n}"], False, "down")
    hand.settle()


WITHDRAWS = {
    "paused": paused, "reset": reset, "stopping": stopping, "fenced": fenced, "stale": stale, "broken": held_for_broken,
}  # fmt: skip


@pytest.mark.parametrize("what", WITHDRAWS)
def test_what_waits_for_a_limit_is_not_sent_once_its_owner_may_not_send_it(worlds: Worlds, what: str) -> None:
    hand = busy(worlds)
    WITHDRAWS[what](hand)
    for id in hand.sending:
        hand.answer(id, DOWN)
    assert hand.sending == []


@pytest.mark.parametrize("what", ["paused", "reset", "stopping", "fenced"])
def test_a_job_that_withdraws_nothing_would_be_seen(worlds: Worlds, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(Sender, "withdraw", lambda self, report, which: [])
    with pytest.raises(AssertionError):
        test_what_waits_for_a_limit_is_not_sent_once_its_owner_may_not_send_it(worlds, what)


def test_a_pause_withdraws_what_waits_for_a_thread(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    world = worlds()
    hand = world.take_over()
    monkeypatch.setattr(hand.senders["general"], "begin_all", lambda: None)  # all threads are busy
    world.add_many(["a", "b"], at=0)
    world.add("c", topic="g.u", at=0)
    hand.settle()
    world.pause("g.t")
    hand.settle()
    assert hand.job.sending_paused == {}
    assert world.aside() == {"h:g.t": 2}
    assert [message.id for group in hand.senders["general"]._groups for message in group.batch] == ["c"]


def test_what_has_waited_for_a_limit_for_long_is_looked_at_again_and_a_cancelled_one_is_gone(worlds: Worlds) -> None:
    hand = busy(worlds)
    world, gone = hand.world, waiting(hand)[0]
    world.cancel(gone)
    world.advance(LOOK_AGAIN + 1)
    live(hand, 4_000, lasts=20, most=2)
    assert sorted([*hand.sent, gone]) == [f"g{n:02}" for n in range(60)]


def test_where_a_send_takes_long_hardly_any_wait_in_memory(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, maxInFlight=2)
    world.add_many([f"g{n:02}" for n in range(30)], at=0)
    live(hand, 4_000, lasts=450, most=2)
    assert len(waiting(hand)) <= 4
    live(hand, 2_000, lasts=10_000, most=2)
    assert len(waiting(hand)) <= 1


def test_what_fails_just_before_it_is_sent_leaves_its_room_and_its_place(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> int:
        raise MemoryError

    world = worlds()
    hand = world.take_over()
    limit(world, rate=100_000, maxInFlight=2)
    for n in range(4):
        world.add(f"{n}", at=0)
    with monkeypatch.context() as planted:
        planted.setattr(NodeLimits, "of", fails)
        with pytest.raises(MemoryError):
            hand.settle()
    hand.job.failed()
    assert hand.job.in_flight.shares["general"].sending == 0
    assert len(live(hand, 1_500)) == 4


# -- several queues --------------------------------------------------------------------------------------------------


def test_a_topic_with_few_permits_keeps_no_slots_from_others_that_share_them(worlds: Worlds) -> None:
    hands = queues_of(worlds, Change("policy:p", '{"match": "g.*", "maxInFlight": 2, "per": "policy"}'))
    hands[0].world.change(Change("limit:g.slow", '{"rate": 1}'))
    hands[1].policies.current = policies = hands[0].policies.current
    other = hands[1].world
    other.store.run(commands.apply_policies(other.keys, policies.version, policies.paused, now=other.now))
    hands[0].world.add_many([f"gslow{n:02}" for n in range(60)], topic="g.slow", at=0)
    other.add_many([f"gfast{n:02}" for n in range(60)], topic="g.fast", at=1)
    sent = [id for _, id in live(hands, 6_000, lasts=100, most=2)]
    assert len([id for id in sent if "fast" in id]) == 60
    assert 4 <= len([id for id in sent if "slow" in id]) <= 7


def sent_after_an_end(worlds: Worlds) -> int:
    """How many messages a queue sends in the 1.5 s after the job of another queue of its node, which had earlier ones parked, was
    fenced while a send of it hangs."""
    hands = queues_of(worlds, Change("policy:p", '{"match": "g.*", "rate": 50, "per": "policy"}'))
    hands[0].world.add("hangs", topic="o.t", at=0)
    for n in range(150):
        hands[0].world.add(f"low{n:03}", at=0)
        hands[1].world.add(f"{n:03}", at=1)
    count = 0
    while (now := hands[0].world.elapsed) < 2_500:
        if now == 1_000:
            hands[0].job._fence(True)
            count = 0
        for _ in range(3):
            hands[0].limits.tick()
            for hand in hands:
                hand.settle()
                for id in hand.senders["general"].ids:
                    hand.answer(id)
                    count += not id.startswith("low")
        for hand in hands:
            hand.world.advance(10)
    return count


def test_who_ends_while_a_send_hangs_leaves_the_permits_to_others(worlds: Worlds) -> None:
    assert sent_after_an_end(worlds) >= 60


@pytest.mark.parametrize("rate", [50, 2])
def test_what_a_queue_wants_that_stands_still_is_not_kept_from_others(worlds: Worlds, rate: int) -> None:
    hands = queues_of(worlds, Change("policy:p", f'{{"match": "g.*", "rate": {rate}, "per": "policy"}}'))
    hands[0].world.add_many([f"early{n:03}" for n in range(100)], at=0)
    hands[1].world.add_many([f"{n:03}" for n in range(250)], at=1)
    live(hands, 1_000)  # then its primary hangs, and nothing ticks the first one
    still, others = hands[0].world, hands[1:]
    before = len(hands[1].sent)
    while hands[1].world.elapsed < 4_000:
        live(others, 10)
        still.advance(10)
    assert len(hands[1].sent) - before >= 0.8 * rate * 3 - rate // 4


#: The topics of the queues in turns, their limit, and the ms that a send lasts.
SHARED: list[tuple[str, dict[str, int], int]] = [
    ("g.t", {"rate": 60, "burst": 20}, 0),
    ("g.t", {"rate": 5, "burst": 5}, 0),
    ("g.t", {"maxInFlight": 3}, 50),
    ("g.t", {"rate": 60, "burst": 20, "maxInFlight": 3}, 50),
    ("s.t", {"rate": 60, "burst": 20}, 0),
    ("s.t", {"rate": 5, "burst": 5}, 0),
    ("g.t s.t", {"rate": 60, "burst": 20}, 0),
    ("g.t s.t", {"rate": 5, "burst": 5}, 0),
]


@pytest.mark.parametrize(("topics", "policy", "lasts"), SHARED)
def test_every_queue_gets_its_share_of_a_limit_whatever_is_due_first(
    worlds: Worlds, topics: str, policy: dict[str, int], lasts: int
) -> None:
    """Three workers own sixteen queues, and the messages of each queue are due before those of the next one."""
    random.seed(topics)
    fields = ", ".join(f'"{name}": {value}' for name, value in policy.items())
    hands = queues_of(worlds, Change("policy:p", f'{{"match": "*", "per": "policy", {fields}}}'), count=16, nodes=3)
    for queue, hand in enumerate(hands):
        topic = topics.split()[queue % len(topics.split())]
        hand.world.add_many([f"{queue:02}-{n:02}" for n in range(60)], topic=topic, at=queue)
    seconds = 24 if policy.get("rate") == 5 else 8
    gone = gone_in(hands, 1_000 * seconds, lasts)
    assert sum(gone) >= (0.7 if lasts else 0.9) * seconds * policy.get("rate", 60)  # other nodes get slots in between
    # Nodes take slots in turns of a second, see test_permits.
    for some in [gone[node::3] for node in range(3)] if lasts else [gone]:
        assert min(some) >= 0.4 * sum(some) / len(some), gone


def gone_in(hands: list[Hand], ms: int, lasts: int) -> list[int]:
    """How many messages of each queue go in so much time."""
    began: dict[str, int] = {}
    before = [len(hand.world.records()) for hand in hands]
    world = hands[0].world
    end = world.elapsed + ms
    while (now := world.elapsed) < end:
        for node in random.sample(range(3), 3):
            hands[node].limits.tick()
            for id in hands[node].sending:
                if now - began.setdefault(id, now) >= lasts:
                    hands[node].answer(id)
            for hand in hands[node::3]:
                if hand.job.wants_to_look(now):
                    hand.tick()
        for hand in hands:
            hand.world.advance(10)
    return [count - len(hand.world.records()) for count, hand in zip(before, hands, strict=True)]


def test_limits_that_do_not_bind_park_nothing_however_many_topics_have_one(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, "g.*", rate=1_000)
    for n in range(400):
        world.add(f"{n:03}", topic=f"g.{n}", at=0)
    world.advance(1)
    assert len(live(hand, 500, parks=False)) == 400


# -- streams in this Redis -------------------------------------------------------------------------------------------


def in_a_cluster(hand: Hand) -> None:
    """Its pulls cannot spend from buckets, which may lie on other servers: they append by permits."""
    hand.job.topics._one_server = False


def test_streams_here_take_all_of_a_limit_that_does_not_bind_without_a_detour(worlds: Worlds) -> None:
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    limit(world, "*", rate=100_000)
    for n in range(1_000):
        world.add(f"{n:04}", topic=f"s{n % 4}", at=n // 5)
    live(hand, 230, parks=False)
    assert [len(world.stream(f"s{n}")) for n in range(4)] == [250] * 4


def test_streams_here_get_so_many_and_keys_keep_their_order(worlds: Worlds) -> None:
    table = (Route(name="one", match="s.*", stream="all"), GENERAL, OTHER)
    world = worlds(table=table)
    hand = world.take_over()
    world.add("first", topic="s.t", at=0)
    world.add("known", topic="s.u", at=0)
    live(hand, 20)
    limit(world, "s.t", rate=50, burst=25)
    for n in range(120):
        world.add(f"{n:03}", topic="s.t" if n % 2 else "s.u", at=30, ordering_key="" if n % 3 else f"k{n % 2}")
    world.advance(30)
    counts = []
    for _ in range(16):
        live(hand, 100)
        counts.append(len([id for id in world.stream("all")[2:] if int(id) % 2]))
    assert all(count <= 50 * 0.1 * (place + 1) + 25 for place, count in enumerate(counts))
    assert counts[-1] == 60
    found = world.stream("all")[2:]
    assert len(found) == 120
    for key in range(2):
        keyed = [id for id in found if int(id) % 3 == 0 and int(id) % 2 == key]
        assert keyed == sorted(keyed)
    free = [id for id in found[:40] if int(id) % 2 == 0 and int(id) % 3]
    assert len(free) >= 20, "what is not limited and follows nothing goes on"


def test_topics_that_share_a_rate_get_all_of_it_to_the_last_message(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_went() -> bool:
        world = worlds(table=(Route(name="all", match="*"),))
        hand = world.take_over()
        topics = [f"s{n}" for n in range(8)]
        limit(world, "*", rate=200, burst=100, per='"policy"')
        for n in range(240):
            world.add(f"{n:03}", topic=topics[n % 8 if n < 200 else 7], at=0)
        live(hand, 1_300)
        return sum(len(world.stream(topic)) for topic in topics) == 240

    assert all_went()


def test_a_pull_gives_back_what_it_does_not_use(worlds: Worlds) -> None:
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    in_a_cluster(hand)
    limit(world, "*", rate=200, burst=100, per='"policy"')
    world.add("a", topic="s", at=0)
    live(hand, 100)
    rate = hand.limits.rate("s", hand.policies.current)
    assert rate is not None
    there = rate._count_permits(world.elapsed)
    for _ in range(3):
        hand.job.wake(0)
        hand.settle()
    assert rate._count_permits(world.elapsed) == there > 0


@pytest.mark.parametrize("behind", [0, 450, 2_000])
@pytest.mark.parametrize("topic", ["s.t", "g.t"])
def test_a_worker_whose_clock_is_wrong_gets_the_full_rate(worlds: Worlds, topic: str, behind: int) -> None:
    world = worlds()
    hand = world.take_over()
    hand.job._clock.error = -behind  # type: ignore[attr-defined]  # the world's clock has one
    limit(world, topic, rate=50, burst=25)
    world.add_many([f"{n:03}" for n in range(120)], topic=topic, at=0)
    world.advance(behind)
    sent = live(hand, 2_000)
    count = len(world.stream(topic)) if topic == "s.t" else len(sent)
    assert 0.93 * 50 * 2 <= count <= 50 * 2 + 25


def into_streams_of_queues_of(worlds: Worlds) -> int:
    """How many messages of two queues of a node, which fall due in turns, are appended in 2 s at 200/s, if a trip takes 10 ms."""
    hands = queues_of(worlds, Change("policy:p", '{"match": "s.*", "rate": 200, "burst": 40, "per": "policy"}'))
    for n in range(600):
        hands[n % 2].world.add(f"{n:03}", topic="s.t", at=n // 10)
    for _ in range(200):
        hands[0].limits.tick()
        for hand in hands:
            hand.tick()
        for hand in hands:
            hand.world.advance(10)
    return len(hands[0].world.stream("s.t"))


def test_streams_of_two_queues_get_the_rate(worlds: Worlds) -> None:
    assert into_streams_of_queues_of(worlds) >= 320


@pytest.mark.parametrize(
    ("match", "cluster", "count", "cost"),
    [("s.*", False, 300, 0.2), ("s.*", True, 300, 0.2), ("g.*", False, 300, 0.2), ("g.*", False, 150, 5.0)],
)
def test_however_many_limits_are_asked_for_at_once_all_goes(
    worlds: Worlds, match: str, cluster: bool, count: int, cost: float
) -> None:
    """Topics with one message each are paused, held and resumed, while a request costs so many ms: permits last 400 ms."""
    world = worlds()
    hand = world.take_over()
    if cluster:
        in_a_cluster(hand)
    slow: Any = Slow(world, cost)
    hand.store = hand.limits._store = slow
    limit(world, match, rate=1_000)
    world.pause(match)
    for n in range(count):
        world.add(f"{n:03}", topic=match.replace("*", str(n)), at=0)
    hand.settle()
    assert sum(world.aside().values()) == count
    world.pause()
    live(hand, 5_000 if cost < 1 else 15_000)
    assert world.records() == {}


class Slow:
    """A Redis to which each command of a packet costs so many ms."""

    keys = KEYS

    def __init__(self, world: OneQueue, cost: float) -> None:
        self._world, self._store, self._cost, self._left = world, world.store, cost, 0.0

    def run_many(self, wanted: Any) -> Any:
        packet = list(wanted)
        answers = self._store.run_many(packet)
        self._left += len(packet) * self._cost
        self._world.advance(int(self._left))
        self._left %= 1
        return answers

    def server_of(self, key: str) -> None:
        return None


# -- in threads ------------------------------------------------------------------------------------------------------


def test_what_was_paused_while_there_was_no_worker_goes_at_the_rate_of_its_resume(valkey: ServerUnderTest) -> None:
    target = MemoryTarget()
    settings = settings_for(valkey.url, target, redis_timeout=30_000)
    with Client(settings=settings) as client:
        client.pause("m.*", wait=0)
        for n in range(200):
            client.schedule(Message(topic="m.t", body=n, delay_time=0))
        client.resume("m.*", rate=2)
        with RunningNode(settings):
            eventually(lambda: len(target.deliveries) >= 4, "the first ones went")
            assert list(client.policies().limits) == ["m.*"]
            assert len(target.deliveries) < 100
