"""What every coordinator keeps to. Another one joins by a function in COORDINATORS that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from coordinator import Claim, Coordinator, LocalCoordinator, epoch_text
from coordinator.epoch import draw_owner, next_epoch
from coordinator.local import HOLD
from coordinator.zookeeper import ZooKeeperCoordinator
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from tests.support.timeouts import SESSION_TIMEOUT

QUEUES = 4
ERA = 3
Make = Callable[..., Coordinator]


Build = Callable[[Store, ManualClock, int], Coordinator]


class Kind(msgspec.Struct, frozen=True):
    """How to make coordinators that know each other, and what one kind of them does in its own way.

    `hold`: the ms after which a queue that was taken over is claimed back. `overtakes`: how many newer epochs that
    come in between a claim gets over at once.
    """

    builder: Callable[[pytest.FixtureRequest], Build]
    hold: int
    overtakes: int


def local(request: pytest.FixtureRequest) -> Build:
    return lambda store, clock, era: LocalCoordinator(store, range(QUEUES), era, clock)


def zookeeper(request: pytest.FixtureRequest) -> Build:
    server, root = request.getfixturevalue("zookeeper"), request.getfixturevalue("zookeeper_root")
    numbers = count(1)

    def build(store: Store, clock: ManualClock, era: int) -> Coordinator:
        eras = [era]  # what it knows at first; when it reads the era again, it is the latest one
        return ZooKeeperCoordinator(
            server.hosts,
            f"node-{next(numbers)}",
            queues=range(QUEUES),
            store=store,
            clock=clock,
            root=root,
            session_timeout=SESSION_TIMEOUT,
            read_era=lambda: eras.pop() if eras else ERA + 2,
        )

    return build


COORDINATORS = {"local": Kind(local, HOLD, 2), "zookeeper": Kind(zookeeper, 0, 1)}


@pytest.fixture(params=COORDINATORS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return COORDINATORS[request.param]


@pytest.fixture
def make(kind: Kind, request: pytest.FixtureRequest, store: Store, clock: ManualClock) -> Iterator[Make]:
    """Makes coordinators that have started."""
    made: list[Coordinator] = []
    build = kind.builder(request)

    def start(era: int = ERA) -> Coordinator:
        made.append(build(store, clock, era))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()


def claimed(one: Coordinator, queue: int) -> Claim:
    """The claim of a queue, which this one gets."""
    claim = one.claim(queue)
    assert claim is not None
    return claim


def at_claims(store: Store, monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], object]) -> None:
    """Do this whenever a claim is about to reach Redis."""
    real = store.run

    def run(command: Any) -> Any:
        if command.script == "claim":
            with monkeypatch.context() as undone:
                undone.setattr(store, "run", real)
                act(command)
        return real(command)

    monkeypatch.setattr(store, "run", run)


def pulls(store: Store, queue: int, epoch: str) -> bool:
    """Whether Redis lets this epoch pull."""
    answer: Any = store.run(commands.pull(KEYS.queue(queue), epoch, offset=0, room=1))
    return answer is not None


def test_a_node_alone_gets_every_queue_and_a_claim_owns_its_queue_and_no_other(make: Make, store: Store) -> None:
    one = make()
    assert one.assigned() == frozenset(range(QUEUES))
    first, second = claimed(one, 0), claimed(one, 1)
    assert (first.queue, second.queue) == (0, 1)
    assert pulls(store, 0, first.epoch)
    assert pulls(store, 1, second.epoch)
    assert first.parked == ()


def test_each_claim_of_a_queue_has_a_greater_epoch_and_fences_those_before(make: Make, store: Store) -> None:
    epochs = []
    for _ in range(12):  # so that the number gets a digit more
        one = make()
        claim = claimed(one, 2)
        epochs.append(claim.epoch)
        one.release(2, claim.epoch)
    assert epochs == sorted(set(epochs))
    assert len({len(epoch) for epoch in epochs}) == 1
    assert [pulls(store, 2, epoch) for epoch in epochs] == [False] * 11 + [True]


def test_a_claim_names_the_parked_sets_of_its_queue(make: Make, store: Store) -> None:
    for name in ("t:general", "k:customer 7"):
        store.run(commands.plain("HSET", KEYS.queue(1).state, f"parked:{name}", "1", read=lambda _: None))
    claim, other = claimed(make(), 1), claimed(make(), 0)
    assert sorted(claim.parked) == ["k:customer 7", "t:general"]
    assert other.parked == ()


def test_a_queue_that_was_fenced_is_taken_back_with_a_greater_epoch(
    make: Make, kind: Kind, store: Store, clock: ManualClock
) -> None:
    one = make()
    claim = claimed(one, 1)
    newer = next_epoch(claim.epoch, ERA, draw_owner())
    store.run(commands.claim(KEYS.queue(1), newer))
    assert not pulls(store, 1, claim.epoch)
    one.fenced(1, claim.epoch)
    one.release(1, claim.epoch)
    if kind.hold:  # it is left to the newer node for a while
        clock.advance(kind.hold - 1)
        assert one.assigned() == {0, 2, 3}
        clock.advance(1)
    assert one.assigned() == {0, 1, 2, 3}
    again = claimed(one, 1)
    assert again.epoch > newer
    assert pulls(store, 1, again.epoch)


def test_of_two_local_ones_that_read_the_same_epoch_and_then_claim_only_one_owns(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read before either claims: their numbers are the same."""
    one, other = (LocalCoordinator(store, range(QUEUES), ERA, clock) for _ in range(2))
    claimed(one, 0)
    claims: list[Claim] = []

    def other_claims(_: object) -> None:
        if not claims:
            claims.append(claimed(other, 0))

    at_claims(store, monkeypatch, other_claims)
    claims.append(claimed(one, 0))
    assert sorted(pulls(store, 0, claim.epoch) for claim in claims) == [False, True]


def test_a_claim_whose_reply_was_lost_is_repeated_and_owns(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LocalCoordinator(store, range(QUEUES), ERA, clock)
    at_claims(store, monkeypatch, store.run)  # nobody hears the answer to the first of both
    claim = claimed(one, 0)
    assert store.run(commands.stored_epoch(KEYS.queue(0))) == claim.epoch
    assert claim.epoch.split(".")[1].endswith("01"), "it was recognised as its own at once"
    assert pulls(store, 0, claim.epoch)


def test_a_claim_that_is_overtaken_in_the_middle_tries_again_with_a_greater_epoch(
    make: Make, kind: Kind, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make()
    overtaken: list[str] = []

    def overtake(command: Any) -> None:
        if len(overtaken) < kind.overtakes:
            overtaken.append(next_epoch(command.args[0], ERA, draw_owner()))
            store.run(commands.claim(KEYS.queue(0), overtaken[-1]))

    at_claims(store, monkeypatch, overtake)
    claim = claimed(one, 0)
    assert claim.epoch > max(overtaken)
    assert pulls(store, 0, claim.epoch)


def test_a_coordinator_of_a_later_era_is_above_every_epoch_of_the_earlier_ones(make: Make, store: Store) -> None:
    store.run(commands.claim(KEYS.queue(0), epoch_text(ERA - 1, 2**63, 0)))
    claim = claimed(make(), 0)
    assert claim.epoch > epoch_text(ERA - 1, 2**64 - 1, 0)


def test_a_coordinator_that_missed_a_new_era_still_gets_above_what_redis_has(make: Make) -> None:
    first = make(era=ERA + 2)
    newer = claimed(first, 3)
    first.release(3, newer.epoch)
    older = claimed(make(era=ERA), 3)
    assert older.epoch > newer.epoch


def test_a_node_that_does_not_reach_redis_or_whose_clock_is_behind_keeps_its_queues_while_it_is_alone(
    make: Make, clock: ManualClock
) -> None:
    one = make()
    for reachable, behind in ((True, False), (False, False), (False, False), (True, True), (True, True), (True, False)):
        one.redis_reachable(reachable, behind=behind)
        clock.advance(6_000)
        assert one.assigned() == frozenset(range(QUEUES))


def test_releasing_and_stopping_again_is_harmless(make: Make) -> None:
    one = make()
    claim = claimed(one, 0)
    one.release(0, claim.epoch)
    one.release(0, claim.epoch)
    one.stop()
    one.stop()
