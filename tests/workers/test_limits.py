"""What a rate limits goes no faster over all owners, lowest due first, and nothing else waits for it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partialmethod
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from delayq import Client, Message
from delayq.policies import Bucket
from delayq.routes import Route
from delayq.store import commands
from delayq.store.commands import Bound, Change, Granted, Head
from delayq.store.keys import queue_keys
from delayq.targets import OK, Result
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.one_queue import GENERAL, OTHER, Hand, OneQueue
from workers.queue import grants
from workers.queue.grants import GOOD, SHORTEST_LIFE, Ask, Grants, Leases, Want, _Known, count_of
from workers.queue.in_flight import InFlight
from workers.queue.offers import Offer, Offers
from workers.queue.parking import Parking
from workers.queue.slots import PATIENCE
from workers.queue.topics import Topics

Worlds = Callable[..., OneQueue]
DOWN = Result.unavailable("down")


def limit(world: OneQueue, match: str = "g.t", **policy: object) -> None:
    fields = ", ".join(f'"{name}": {value}' for name, value in {"match": f'"{match}"', **policy}.items())
    world.change(Change("policy:p", f"{{{fields}}}"))


def live(hand: Hand, ms: int, answer: Callable[[str], Result] = lambda _: OK) -> list[tuple[int, str]]:
    """Let so much time pass, with an ask whenever it is time; when each message was sent."""
    found: list[tuple[int, str]] = []
    end = hand.world.elapsed + ms
    while hand.world.elapsed < end:
        now = hand.world.elapsed
        for _ in range(4):
            hand.leases.tick()
            found += [(now, id) for id in hand.run(0, lambda message: answer(message.id))]
        hand.world.advance(10)
    return found


def offered(hand: Hand) -> list[str]:
    """What waits in memory for a grant."""
    return [offer.message.id for known in hand.job._tenure.leases.known.values() for offer in known.offers]


def bounded(times: list[int], rate: float, burst: int) -> bool:
    """Whether no time has more than its share and one burst."""
    return all(
        place - first + 1 <= rate * (times[place] - times[first]) / 1_000 + burst
        for first in range(len(times))
        for place in range(first, len(times))
    )


@pytest.mark.parametrize(("rate", "burst"), [(50, 50), (20, 10), (200, 100)])
def test_what_is_beyond_the_rate_waits_lowest_first_and_other_topics_do_not(
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
    assert min(rate * 2 * 0.97, 240) <= len(bound)
    assert [int(id) % 3 for _, id in bound] == sorted(int(id) % 3 for _, id in bound)
    limit(world, rate=100_000)
    live(hand, 1_000)
    assert world.stats().counters["forwarded"] == 480


def test_a_limit_that_does_not_bind_lets_what_comes_pass_without_a_detour(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=100_000)
    for n in range(60):
        for m in range(4):
            world.add(f"{n:03}-{m}", at=n * 10)
    sent = live(hand, 600)
    assert len(sent) == 240
    assert all(at <= int(id[:3]) * 10 + (60 if at < 200 else 0) for at, id in sent), "only the first ones waited"
    live(hand, 1_500)
    assert hand.leases.tick() > 1_000, "an idle limit asks nothing"


def waiting(world: OneQueue, policy: Any) -> Hand:
    """An owner in whose memory 250 messages wait, as nobody has asked yet for what limits them."""
    hand = world.take_over()
    limit(world, **policy)
    for n in range(250):
        world.add(f"{n:03}", at=0)
    hand.settle()
    assert (hand.sent, world.aside()) == ([], {})
    return hand


@pytest.mark.parametrize("policy", [{"rate": 100_000}, {"maxInFlight": 1_000}, {"rate": 100_000, "maxInFlight": 1_000}])
def test_what_was_not_asked_for_yet_makes_messages_wait_in_memory_and_no_detour(worlds: Worlds, policy: Any) -> None:
    world = worlds()
    hand = waiting(world, policy)
    sent = []
    for _ in range(20):
        hand.leases.tick()
        sent += hand.run(0, lambda _: OK)
        assert hand.parked == [], "nothing is set aside"
        world.advance(5)
    assert sent == [f"{n:03}" for n in range(250)]


@pytest.mark.parametrize(
    ("policy", "forgets"), [({"rate": 100_000}, False), ({"rate": 100_000}, True), ({"maxInFlight": 1_000}, False)]
)
def test_what_waits_for_a_limit_goes_as_soon_as_there_is_none_and_nothing_is_lacked_any_more(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, policy: Any, forgets: bool
) -> None:
    world = worlds()
    hand = waiting(world, policy)
    if forgets:
        monkeypatch.setattr(InFlight, "_wants_nothing", lambda _: None)
    world.change(Change("policy:p", ""))
    sent = []
    for _ in range(5):
        sent += hand.run(0, lambda _: OK)
    assert sent == [f"{n:03}" for n in range(250)]
    assert (hand.pause > 100) is not forgets, "it waits for nothing"


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("policy", [{"rate": 5, "burst": 5}, {"maxInFlight": 5}])
def test_what_is_not_answered_or_is_too_little_holds_up_nothing_else(worlds: Worlds, away: bool, policy: Any) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, **policy)
    for n in range(40):
        world.add(f"g{n:02}", at=0)
        world.add(f"s{n:02}", topic="s.t", at=10)
    for _ in range((PATIENCE + 30) // 10):
        if not away:
            hand.leases.tick()
        hand.run(10)
    assert len(world.stream("s.t")) == 40
    assert sum(world.aside().values()) + len(hand.sent) + len(offered(hand)) == 40


def test_streams_here_take_all_of_a_limit_that_does_not_bind_without_a_detour(worlds: Worlds) -> None:
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    limit(world, "*", rate=100_000)
    for n in range(1_000):
        world.add(f"{n:04}", topic=f"s{n % 4}", at=n // 100)
    for _ in range(10):
        live(hand, 10)
        assert hand.parked == [], "nothing is set aside"
    assert [len(world.stream(f"s{n}")) for n in range(4)] == [250] * 4


def test_a_retry_needs_a_grant_too(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1, burst=1)
    for id in "ab":
        world.add(id, at=0)
    sent = live(hand, 5_500, lambda id: DOWN if world.elapsed < 2_500 else OK)
    times = [at for at, _ in sent]
    assert 4 <= len(times) <= 6
    assert all(second - first >= 800 for first, second in pairwise(times))


def test_all_topics_of_a_policy_share_its_rate_or_each_has_its_own(worlds: Worlds) -> None:
    for per, most in (("policy", 20), ("topic", 40)):
        world = worlds()
        hand = world.take_over()
        limit(world, "*", rate=10, burst=10, per=f'"{per}"')
        for n in range(50):
            world.add(f"g{n}", at=0)
            world.add(f"o{n}", topic="o.t", at=0)
        sent = live(hand, 1_000)
        assert most * 0.7 <= len(sent) <= most


def test_of_a_policy_and_a_limit_the_slower_counts_and_a_paused_topic_goes_not_at_all(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1_000)
    world.change(Change("limit:g.*", '{"rate": 10}'))
    for n in range(50):
        world.add(f"{n}", at=0)
    assert 15 <= len(live(hand, 1_000)) <= 20
    world.pause("g.*")
    hand.tick()
    assert live(hand, 1_500) == []
    assert hand.leases.tick() > 1_000, "nothing is wanted for it"
    world.pause()
    assert 15 <= len(live(hand, 1_000)) <= 20


def test_order_within_a_key_of_a_topic_stays(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=10, burst=5)
    for n in range(40):
        world.add(f"{n:02}", topic="g.t" if n % 3 else "g.u", at=n // 4, ordering_key=f"k{n % 2}")
    world.advance(20)
    sent = [id for _, id in live(hand, 6_000)]
    assert len(sent) == 40
    for key, topic in itertools.product((0, 1), (True, False)):
        of_key = [id for id in sent if int(id) % 2 == key and (int(id) % 3 == 0) == topic]
        assert of_key == sorted(of_key)


def test_streams_here_get_so_many_and_keys_keep_their_order(worlds: Worlds) -> None:
    table = (Route(name="one", match="s.*", stream="all"), GENERAL, OTHER)
    world = worlds(table=table)
    hand = world.take_over()
    world.add("first", topic="s.t", at=0)
    world.add("known", topic="s.u", at=0)
    live(hand, 20)
    limit(world, "s.t", rate=50, burst=25)
    for n in range(120):
        world.add(f"{n:03}", topic="s.t" if n % 2 else "s.u", at=30, ordering_key="" if n % 3 else "k")
    world.advance(30)
    counts = []
    for _ in range(16):
        live(hand, 100)
        counts.append(len([id for id in world.stream("all")[2:] if int(id) % 2]))
    assert all(count <= 50 * 0.1 * (place + 1) + 25 for place, count in enumerate(counts))
    assert counts[-1] == 60
    found = world.stream("all")[2:]
    assert len(found) == 120
    for topic in (0, 1):
        keyed = [id for id in found if int(id) % 3 == 0 and int(id) % 2 == topic]
        assert keyed == sorted(keyed)
    free = [id for id in found[:40] if int(id) % 2 == 0 and int(id) % 3]
    assert len(free) >= 20, "messages of a topic without a limit go on"


def to_the_end_at_the_rate(worlds: Worlds) -> bool:
    """Whether messages of several streams here go out at the rate that these share, the last few as well."""
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    topics = [f"s{n}" for n in range(8)]
    limit(world, "*", rate=200, burst=100, per='"policy"')
    for n in range(240):
        world.add(f"{n:03}", topic=topics[n % 8 if n < 200 else 7], at=0)
    live(hand, 1_200)
    return sum(len(world.stream(topic)) for topic in topics) == 240


def test_topics_that_share_a_rate_get_all_of_it_to_the_last_message(worlds: Worlds) -> None:
    assert to_the_end_at_the_rate(worlds)


def a_bound_for_each(*args: Any) -> list[Bound]:
    """A planted mistake: the first topic takes what is reserved for all that share a rate."""
    bounds: list[Bound] = bounds_of(*args)
    firsts = {bound.share: bound.topic for bound in reversed(bounds)}
    return [one if firsts[one.share] == one.topic else structs.replace(one, most=0, share="") for one in bounds]


bounds_of = Topics.bounds


def test_a_planted_mistake_wastes_what_was_granted(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topics, "bounds", a_bound_for_each)
    with pytest.raises(AssertionError):  # or what comes back is held again, without an end
        assert to_the_end_at_the_rate(worlds)


def test_a_pull_that_finds_nothing_gives_back_what_was_reserved_for_it(worlds: Worlds) -> None:
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    limit(world, "*", rate=200, burst=100, per='"policy"')
    world.add("a", topic="s", at=0)
    live(hand, 100)
    (known,) = hand.job._tenure.leases.known.values()
    there = known.spare.count(hand.job._tenure.clock.monotonic())
    for _ in range(3):
        hand.job.wake(0)
        hand.settle()
    assert known.spare.count(hand.job._tenure.clock.monotonic()) == there > 0


def reserved_by_pulls_of_nothing(worlds: Worlds, monkeypatch: pytest.MonkeyPatch, there: int, later: int) -> int:
    """How many of four pulls that find nothing are made with grants of their own, the last one so many ms later."""
    world = worlds(table=(Route(name="all", match="*"),))
    hand = world.take_over()
    limit(world, "*", rate=100_000)
    world.add("a", topic="s", at=0)
    live(hand, 100)
    now = hand.job._tenure.clock.monotonic()
    (known,) = hand.job._tenure.leases.known.values()
    known.spare.take(1_000_000, now)
    known.spare.add([(now + 400, there)])
    reserve, count = Grants.reserve, []

    def counted(*args: Any) -> Any:
        count.append(1)
        return reserve(*args)

    with monkeypatch.context() as patched:
        patched.setattr(Grants, "reserve", counted)
        for wait in (0, 0, 0, later):
            world.advance(wait)
            hand.job.wake(0)
            hand.tick()
    return len(count)


def test_what_a_pull_had_no_use_for_is_kept_for_the_next_one_for_a_while_where_there_is_enough(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reserved(there: int, later: int) -> int:
        return reserved_by_pulls_of_nothing(worlds, monkeypatch, there, later)

    assert reserved(there=10_000, later=0) == 1
    assert reserved(there=10_000, later=210) == 2, "it would have ended soon"
    assert reserved(there=20, later=0) == 4, "others may lack it"


def by_two_nodes(worlds: Worlds, mistake: str = "") -> bool:
    """Whether one owner, and another after it, together keep to a rate."""
    world = worlds()
    hand = world.take_over()
    limit(world, rate=40, burst=40)
    for n in range(300):
        world.add(f"{n:03}", at=0)
    sent = live(hand, 1_000)
    other = world.take_over(node=2)
    other.book.current = hand.book.current
    if mistake == "the node's clock":
        other.leases._test_now = lambda: world.now + 10 * world.elapsed
    hand.leases.tick()
    sent += live(other, 1_000)
    assert len(sent) >= 75
    return bounded([at for at, _ in sent], 40, 40)


def test_two_nodes_together_keep_to_the_rate(worlds: Worlds) -> None:
    assert by_two_nodes(worlds)


@pytest.mark.parametrize("mistake", ["the node's clock", "a bucket for each node", "sent without a grant"])
def test_each_mistake_would_be_seen(worlds: Worlds, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    if mistake == "a bucket for each node":
        asks = Leases.asks

        def of_its_own(self: Leases, now: int) -> tuple[list[Ask], int | None]:
            found, again = asks(self, now)
            return [_of(ask, f"t:{id(self)}") for ask in found], again

        monkeypatch.setattr(Leases, "asks", of_its_own)
        monkeypatch.setattr(Leases, "granted", partialmethod(_by_any_name, Leases.granted))
    if mistake == "sent without a grant":
        monkeypatch.setattr(InFlight, "_with_grants", lambda self, batch: (batch, {}))
    assert not by_two_nodes(worlds, mistake)


def _by_any_name(self: Leases, granted: Any, ask: Ask, *given: Any) -> None:
    granted(self, _of(ask, "t:g.t"), *given)


def _of(ask: Ask, name: str) -> Ask:
    return structs.replace(ask, bucket=structs.replace(ask.bucket, name=name))


def test_a_lease_that_is_lost_or_grows_old_is_lost(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=10, burst=10)
    for n in range(40):
        world.add(f"{n:02}", at=0)
    hand.settle()
    hand.leases.tick()
    (known,) = hand.job._tenure.leases.known.values()
    assert known.spare.count(world.elapsed) == 6
    world.advance(450)
    hand.settle()
    assert hand.sent == []
    assert len(live(hand, 1_000)) >= 8


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


def grants_after_an_end(worlds: Worlds) -> int:
    """How many messages a queue sends in the 1.5 s after the job of another queue of its node, which had lower ones aside, began
    to end: that still has a send which hangs."""
    leases, made = Leases(), [worlds(), worlds()]
    hands = []
    for queue, world in enumerate(made):
        world.keys = queue_keys(queue)
        hands.append(world.take_over(node=queue + 1, leases=leases))
    made[0].add("hangs", topic="o.t", at=0)
    hands[0].settle()
    limit(made[0], "g.*", rate=50, per='"policy"')
    hands[1].book.current = policies = hands[0].book.current
    made[1].store.run(commands.apply_policies(made[1].keys, policies.version, policies.paused, now=made[1].now))
    for n in range(150):
        made[0].add(f"low{n:03}", at=0)
        made[1].add(f"{n:03}", at=1)
    count = 0
    while made[0].elapsed < 2_500:
        if made[0].elapsed == 1_000:
            hands[0].job.stop()
            count = 0
        for _ in range(3):
            hands[0].leases.tick()
            for hand in hands:
                hand.settle()
                for id in hand.forwarders["general"].ids:
                    hand.answer(id)
                    count += hand is hands[1]
        for world in made:
            world.advance(10)
    return count


def test_who_ends_while_a_send_hangs_leaves_the_grants_to_others(worlds: Worlds) -> None:
    assert grants_after_an_end(worlds) >= 50


def test_who_ends_and_says_nothing_would_keep_the_grants(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InFlight, "_wants_nothing", lambda self: None)
    assert grants_after_an_end(worlds) < 30


def test_a_thread_that_could_not_be_started_is_started_later(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    thread = worlds().take_over().leases
    with monkeypatch.context() as planted:
        planted.setattr(threading.Thread, "start", fails)
        thread.hurry()
        thread.start()
    before = thread._thread
    thread.stop()  # so that it does not wait
    thread.start_if_hurried()
    thread.join(60_000)
    assert (before, thread._thread is None) == (None, False)


def test_what_fails_just_before_it_is_sent_leaves_its_room_and_its_slot(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> int:
        raise MemoryError

    world = worlds()
    hand = world.take_over()
    limit(world, rate=100_000, maxInFlight=2)
    for n in range(4):
        world.add(f"{n}", at=0)
    hand.settle()
    hand.leases.tick()
    with monkeypatch.context() as planted:
        planted.setattr(Grants, "take", fails)
        with pytest.raises(MemoryError):
            hand.settle()
    hand.job.failed()
    assert hand.job.in_flight.shares["general"].sending == 0
    (known,) = hand.job._grants.slots._pool.known.values()
    assert len(known.free) == 2
    assert len(live(hand, 1_500)) == 4


# -- trips and bursts ------------------------------------------------------------------------------------------------


class Far:
    """A Redis to which a trip takes so many ms."""

    def __init__(self, world: OneQueue, trip: int) -> None:
        self._world, self._store, self._trip = world, world.store, trip

    def run_many(self, wanted: Any) -> Any:
        self._world.advance(self._trip // 2)
        answers = self._store.run_many(wanted)
        self._world.advance(self._trip - self._trip // 2)
        return answers


def from_afar(worlds: Worlds, rate: int, burst: int, trip: int, ms: int = 3_000) -> list[int]:
    """When each message was sent of more than may go, where one trip is made after the other, of both in turns."""
    world = worlds()
    hand = world.take_over()
    limit(world, rate=rate, burst=burst)
    count = min(240, int(rate * ms / 1_000) + burst + 10)
    for n in range(count):
        world.add(f"{n:03}", at=0)
    far: Any = Far(world, trip)
    hand.store = hand.leases._store = far
    times: list[int] = []
    while world.elapsed < ms and len(times) < count:
        for move in (hand.leases.tick, hand.tick):
            before = len(hand.forwarders["general"].on_submit)
            move()
            times += [world.elapsed] * (len(hand.forwarders["general"].on_submit) - before)
            hand.answer_all()
        world.advance(5)
    return times


@pytest.mark.parametrize(
    ("rate", "burst", "trip"), [(50, 1, 0), (50, 1, 10), (50, 5, 10), (400, 10, 10), (100, 100, 10), (100, 100, 120)]
)
def test_a_small_burst_and_a_long_trip_leave_about_the_rate(worlds: Worlds, rate: int, burst: int, trip: int) -> None:
    times = from_afar(worlds, rate, burst, trip)
    assert len(times) >= 0.8 * rate * (times[-1] - times[0]) / 1_000
    assert len(times) >= min(240, 0.8 * rate * 2)
    assert bounded(times, rate, max(burst, 1 + rate * 15 // 100)), "a burst that is smaller counts as that"


@pytest.mark.parametrize("case", [(50, 5, 60, 4_000), (100, 100, 200, 6_000)])
def test_what_would_come_back_only_once_it_has_a_grant_would_hardly_go(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, case: tuple[int, int, int, int]
) -> None:
    before = len(from_afar(worlds, *case))
    monkeypatch.setattr(_Known, "offered", lambda self, now: 0)
    assert len(from_afar(worlds, *case)) < before / 2


def test_one_is_always_offered_where_others_take_nearly_all(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing would ever go where trips are longer than grants are good."""
    granted, answers = Leases.granted, [0]

    def one_of_six(self: Leases, ask: Ask, answer: Granted, asked_at: int) -> None:
        answers[0] += 1
        granted(self, ask, answer if answers[0] % 6 == 0 else structs.replace(answer, count=0), asked_at)

    monkeypatch.setattr(Leases, "granted", one_of_six)
    assert len(from_afar(worlds, 50, 1, 80, 12_000)) >= 5
    monkeypatch.setattr(_Known, "offered", lambda self, now: self.brought[1] if self.short(now) else 0)
    assert len(from_afar(worlds, 50, 1, 80, 12_000)) == 0, "it would be seen"


@pytest.mark.parametrize("mistake", [False, True])
@pytest.mark.parametrize(("rate", "burst"), [(5_000, 5_000), (100, 10), (50, 1), (0.5, 3)])
def test_never_is_more_than_the_burst_granted_and_good_yet(
    monkeypatch: pytest.MonkeyPatch, rate: float, burst: int, mistake: bool
) -> None:
    if mistake:  # the whole burst at once, and what comes while it is good
        monkeypatch.setattr(_Known, "ask", lambda self, wanted, now: Ask(self.bucket, wanted, burst, self.life))
    leases, bucket, free, most, total = Leases(), Bucket("t:x", rate, burst), 0.0, 0, 0
    good: list[tuple[int, int]] = []
    job = leases.join(lambda: None)
    each = 1_000 / rate
    for now in range(0, 60_000, 10):
        job.want([Want(bucket, 100_000, (0, b""))], now)
        leases.known["t:x"].pace = 100_000  # it would ask for no more than it uses
        for ask in leases.asks(now)[0]:
            used = min(max(free - now, 0), ask.burst * each)
            count = min(ask.wanted, int((ask.burst * each - used) / each + 1e-6))
            free = now + used + count * each
            leases.granted(ask, Granted(count, 1), now)
            good.append((now + ask.life, count))
            total += count
        good = [(until, count) for until, count in good if until > now]
        most = max(most, sum(count for _, count in good))
    assert (most <= max(burst, 1 + rate * SHORTEST_LIFE / GOOD / 1_000)) is not (mistake and burst >= 0.1 * rate > 0.2)
    assert total >= 0.97 * 60 * rate


class InMemory:
    """What an offer needs of one."""

    def __init__(self, place: int) -> None:
        self.place = (place, b"")


def test_grants_go_to_the_lowest_whether_it_is_in_memory_or_aside_in_another_queue(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> list[list[int]]:
        """Of the messages 2 and 9 in memory, by each of three answers, while 3 to 5 are aside, and taken after the second."""
        leases, bucket, went = Leases(), Bucket("t:x", 100, 100), list[Head]()
        forwarder: Any = worlds().take_over().forwarders["general"]
        aside, memory = leases.join(lambda: None), leases.join(lambda: None)
        aside.want([Want(bucket, 3, (3, b""))], 0)
        (ask,), _ = leases.asks(0)
        leases.granted(ask, Granted(0, 1), 0)
        leases.known["t:x"].brought = 5, 5
        messages: list[Any] = [InMemory(9), InMemory(2)]
        offers = [
            Offer(one, forwarder, 0, 1_000, None, lambda _, batch, __: went.extend(one.place for one, _ in batch))
            for one in messages
        ]
        assert memory.offer(bucket, offers, 0) == 2
        found = []
        for now, count in ((10, 2), (20, 2), (30, 1)):
            leases.granted(ask, Granted(count, 1), now)
            found.append([due for due, _ in went])
            went.clear()
            if now == 20:
                found[-1] += [3] * count_of(aside.take(bucket, 3, now))
                aside.want([], now)
        return found

    assert gone() == [[2], [3, 3, 3], [9]]
    monkeypatch.setattr(_Known, "wants", lambda self, now: [])
    assert gone() == [[2, 9], [3, 3], []], "it would be seen"


def test_what_goes_by_both_has_a_slot_and_a_grant_in_the_same_moment(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def most_at_a_time() -> tuple[int, int]:
        """While each send takes 1.5 s, and how many have ended."""
        world = worlds()
        hand = world.take_over()
        limit(world, rate=20, burst=10, maxInFlight=15)
        for n in range(200):
            world.add(f"{n:03}", at=0)
        most, begun = 0, dict[str, int]()
        for now in range(0, 10_000, 10):
            hand.leases.tick()
            for _ in range(3):
                hand.tick()
            for id in hand.sending:
                if now - begun.setdefault(id, now) >= 1_500:
                    hand.answer(id)
            most = max(most, len(hand.sending))
            world.advance(10)
        return most, len(begun) - len(hand.sending)

    most, done = most_at_a_time()
    assert (most, done >= 60) == (15, True)
    match = Offers.match
    monkeypatch.setattr(
        Offers,
        "match",
        lambda self, now, leave, sends: match(
            self, now, lambda offer, job: leave(structs.replace(offer, slots=None), job), sends
        ),
    )
    assert most_at_a_time()[0] > 15, "it would be seen"


@pytest.mark.parametrize(("rate", "burst", "trip"), [(100, 50, 150), (100, 100, 300), (50, 1, 60)])
def test_trips_that_take_long_make_a_rate_slower_and_never_faster(
    worlds: Worlds, rate: int, burst: int, trip: int
) -> None:
    times = from_afar(worlds, rate, burst, trip, 15_000)
    assert bounded(times, rate, max(burst, 1 + rate * 15 // 100))
    assert len(times) >= min(240, 0.1 * rate * (times[-1] - times[0]) / 1_000)


def test_a_pull_that_stood_in_a_redis_that_stood_still_appends_by_no_grant_that_has_ended(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appended() -> int:
        world = worlds()
        hand = world.take_over()
        limit(world, match="s.t", rate=100, burst=100)
        world.add("first", topic="s.t", at=0)
        live(hand, 100)
        for n in range(20):
            world.add(f"{n:02}", topic="s.t", at=world.elapsed)
        far: Any = Far(world, 4_000)
        hand.store = far
        hand.tick()
        return len(world.stream("s.t")) - 1

    def by_the_clock_of_redis(self: Far, wanted: Any) -> Any:
        self._world.advance(self._trip)
        then = [structs.replace(one, args=(one.args[0], self._world.now, *one.args[2:])) for one in wanted]
        return self._store.run_many(then)

    monkeypatch.setattr(Far, "run_many", by_the_clock_of_redis)

    assert appended() == 0
    until_ever = property(lambda self: self.most if isinstance(self.most, int) else sum(n for _, n in self.most))
    monkeypatch.setattr(Bound, "written", until_ever)
    assert appended() > 0, "it would be seen"


def test_what_a_bucket_has_saved_while_its_server_stood_still_is_not_spent_on_asks_that_are_too_old(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stands_still(self: Far, wanted: Any) -> Any:
        self._world.advance(self._trip)
        return self._store.run_many([structs.replace(one, args=(self._world.now, *one.args[1:])) for one in wanted])

    def sent_after_it() -> int:
        world = worlds()
        hand = world.take_over()
        limit(world, rate=50, burst=50)
        for n in range(200):
            world.add(f"{n:03}", at=0)
        live(hand, 2_000)
        far: Any = Far(world, 1_000)
        hand.leases._store, store = far, hand.leases._store
        while world.elapsed < 3_000:
            hand.leases.tick()
            world.advance(10)
        hand.leases._store = store
        return len(live(hand, 60))

    monkeypatch.setattr(Far, "run_many", stands_still)
    assert sent_after_it() >= 25
    monkeypatch.setattr(_Known, "server", property(lambda self: None, lambda self, told: None))
    assert sent_after_it() < 12, "it would be seen"


def of_a_rate_that_was_lowered(worlds: Worlds) -> int:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=1_000, burst=1_000)
    for n in range(60):
        world.add(f"a{n:02}", at=n * 5)
    live(hand, 300)
    for n in range(60):
        world.add(f"b{n:02}", at=310)
    limit(world, rate=1, burst=1)
    world.advance(10)
    return len(live(hand, 1_000))


def test_a_rate_that_was_lowered_counts_at_once(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_a_rate_that_was_lowered(worlds) <= 2
    monkeypatch.setattr(Grants, "_known", lambda self, bucket: self._leases.known.get(bucket.name))
    monkeypatch.setattr(Grants, "_know", partialmethod(_keeping, Grants._know))
    assert of_a_rate_that_was_lowered(worlds) > 20, "it would be seen"


def _keeping(self: Grants, know: Any, bucket: Bucket, now: int) -> bool:
    if (known := self._leases.known.get(bucket.name)) is not None:
        known.bucket = bucket
    return bool(know(self, bucket, now))


def test_a_message_that_comes_alone_does_not_use_up_what_was_saved(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent_of_those_behind() -> int:
        world = worlds()
        hand = world.take_over()
        limit(world, rate=0.1, burst=50)
        world.add("first", at=0)
        for n in range(40):
            world.add(f"{n:02}", at=2_000)
        world.advance(1)
        return len(live(hand, 2_500)) - 1

    assert sent_of_those_behind() == 40
    monkeypatch.setattr(grants, "int", lambda _: 1_000, raising=False)  # as many ahead at any rate
    assert sent_of_those_behind() < 10, "it would be seen"


def test_what_a_pull_gives_back_grows_no_younger_and_no_older() -> None:
    leases, bucket = Leases(), Bucket("t:x", 100, 100)
    job = leases.join(lambda: None)
    job.want([Want(bucket, 3, (0, b""))], 0)
    known = leases.known["t:x"]
    known.spare.add([(400, 40), (750, 8)])
    other = leases.join(lambda: None)
    [reserved] = other.reserve([bucket], 48, 300)
    assert count_of(reserved.leases) == 6, "an eighth of what nobody wants"
    other.give_back([(reserved, 4)])
    assert [known.spare.lasting(now) for now in (300, 400, 750)] == [46, 8, 0]
    [reserved] = job.reserve([bucket], 40, 300)
    assert count_of(reserved.leases) == 40, "what it wants itself it may have"
    job.give_back([(reserved, 5)])
    assert [known.spare.lasting(now) for now in (250, 400, 750)] == [11, 8, 0]


def test_what_is_not_sent_while_its_grant_is_good_is_pulled_anew_and_needs_another(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=10, burst=10)
    for n in range(20):
        world.add(f"{n:02}", at=0)
    hand.settle()
    hand.leases.tick()
    first = hand.settle()
    batches = [batch for _, batch in hand.forwarders["general"].outbox]
    assert {message.grant and message.grant.until for batch in batches for message in batch} == {400}
    world.advance(401)
    for batch in batches:
        hand.forwarders["general"].not_sent(batch)
    assert hand.settle() == []
    sent = live(hand, 1_500)
    assert bounded([at for at, _ in sent], 10, 10)
    assert [id for _, id in sent][: len(first)] == first


def into_streams_of_two_queues(worlds: Worlds) -> int:
    """How many messages of two queues of a node, which fall due in turns, are appended in 2 s at 200/s."""
    leases, made = Leases(), [worlds(), worlds()]
    hands = []
    for queue, world in enumerate(made):
        world.keys = queue_keys(queue)
        hands.append(world.take_over(node=queue + 1, leases=leases))
    limit(made[0], "s.*", rate=200, burst=40, per='"policy"')
    hands[1].book.current = policies = hands[0].book.current
    made[1].store.run(commands.apply_policies(made[1].keys, policies.version, policies.paused, now=made[1].now))
    for n in range(600):
        made[n % 2].add(f"{n:03}", topic="s.t", at=n // 10)
    for _ in range(200):
        hands[0].leases.tick()
        for hand in hands:
            hand.tick()
        for world in made:
            world.advance(10)
    return sum(len(world.stream("s.t")) for world in made)


def test_what_came_back_for_a_stream_has_the_grants_by_which_it_did_though_another_queue_has_lower_ones_by_now(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert into_streams_of_two_queues(worlds) >= 380
    nothing = property(lambda self: [], lambda self, wants: None)
    monkeypatch.setattr(Parking, "_coming", nothing, raising=False)
    assert into_streams_of_two_queues(worlds) < 300, "it would be seen"
