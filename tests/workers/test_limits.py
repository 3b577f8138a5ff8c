"""What a rate limits goes no faster over all owners, lowest due first, and nothing else waits for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from delayq.routes import Route
from delayq.store.commands import Change
from delayq.targets import OK, Result
from tests.workers.one_queue import GENERAL, OTHER, Hand, OneQueue
from workers.node.leases import LeaseThread
from workers.queue.grants import Ask, Leases
from workers.queue.in_flight import InFlight

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
    assert live(hand, 1_500) == []
    assert hand.leases.tick() > 1_000, "nothing is wanted for it"
    world.pause()
    assert 15 <= len(live(hand, 1_000)) <= 20


def test_order_within_a_key_stays_also_across_topics(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=10, burst=5)
    for n in range(40):
        world.add(f"{n:02}", topic="g.t" if n % 3 else "g.u", at=n // 4, ordering_key=f"k{n % 2}")
    world.advance(20)
    sent = [id for _, id in live(hand, 6_000)]
    assert len(sent) == 40
    for key in (0, 1):
        of_key = [id for id in sent if int(id) % 2 == key]
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
    keyed = [id for id in found if int(id) % 3 == 0]
    assert keyed == sorted(keyed)
    free = [id for id in found[:40] if int(id) % 2 == 0 and int(id) % 3]
    assert len(free) >= 20, "what is not limited and follows nothing goes on"


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
        tick = LeaseThread.tick

        def of_its_own(self: LeaseThread) -> int:
            for known in self._leases.known.values():
                known.bucket = structs.replace(known.bucket, name=f"t:{id(self)}")
            return tick(self)

        monkeypatch.setattr(LeaseThread, "tick", of_its_own)
        monkeypatch.setattr(Leases, "granted", partialmethod(_by_any_name, Leases.granted))
    if mistake == "sent without a grant":
        monkeypatch.setattr(InFlight, "_granted", lambda self, batch: batch)
    assert not by_two_nodes(worlds, mistake)


def _by_any_name(self: Leases, granted: Any, ask: Ask, *given: Any) -> None:
    granted(self, structs.replace(ask, bucket=structs.replace(ask.bucket, name="t:g.t")), *given)


def test_a_lease_that_is_lost_or_grows_old_is_lost(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    limit(world, rate=10, burst=10)
    for n in range(40):
        world.add(f"{n:02}", at=0)
    hand.settle()
    hand.leases.tick()
    world.advance(300)
    hand.settle()
    assert hand.sent == []
    assert len(live(hand, 1_000)) >= 8
