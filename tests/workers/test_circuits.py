"""Who is at fault, a message or its target; and which messages share a circuit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.domain.routes import Route
from delayq.store.commands import Change
from delayq.targets import LONGEST_AFTER, OK, Result
from delayq.testing import ManualClock
from tests.workers.conftest import Worlds
from tests.workers.desk import held
from tests.workers.one_queue import START, Hand, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff
from workers.sending.circuit import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, PROBES, Circuit
from workers.sending.message import InFlightMessage, Probe

BROKEN = Result.unknown("answered 500")
AWAY = Result.unavailable("the broker is away")
BOUNDS = Bounds(window=300, look=50, max_attempts=8, backoff=Backoff(100, 1_000))


@pytest.fixture
def world(worlds: Worlds) -> OneQueue:
    return worlds(bounds=BOUNDS)


def fail_alone(world: OneQueue, *ids: str) -> Hand:
    """Messages that are refused for as long as there are no others, until the circuit is open."""
    hand = world.take_over()
    world.add_many(ids)
    hand.run(1_500, lambda held: BROKEN)
    assert hand.senders["general"].circuit.open
    assert world.dead() == {}
    return hand


@pytest.mark.parametrize("poison", [("p0",), ("p0", "p1")], ids=["one", "two"])
def test_few_messages_that_never_get_through_make_no_neighbour_late_and_are_buried(
    world: OneQueue, poison: tuple[str, ...]
) -> None:
    hand = fail_alone(world, *poison)
    good = 0
    while len(world.dead()) < len(poison):
        world.add(f"n{good}", at=world.elapsed)
        assert f"n{good}" in hand.settle(), "it is sent when it is due"
        hand.run(400, lambda held: BROKEN if held.id in poison else OK)
        assert f"n{good}" not in world.records()
        good += 1
        assert good < 50
    dead = world.dead()
    assert sorted(dead) == sorted(poison)
    assert {(one.attempts, one.reason) for one in dead.values()} == {(8, "gave up after 8 attempts: answered 500")}
    assert max(hand.sent.count(f"n{number}") for number in range(good)) == 1


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("most", [1, 3, 8])
def test_alone_a_message_that_may_have_arrived_each_time_is_buried_after_its_attempts(
    world: OneQueue, most: int, keyed: bool
) -> None:
    """E3: This holds also for a message that is alone on its route."""
    hand = world.take_over()
    attempts: list[int] = []

    def answer(held: InFlightMessage) -> Result:
        attempts.append(held.attempt)
        return BROKEN

    world.add("p0", max_attempts=most, ordering_key="k" if keyed else "")
    for redriven in range(3):  # the circuit is open by then
        while not world.dead():
            hand.run(1_000, answer)
        assert attempts == [*range(1, most + 1)] * (redriven + 1)
        assert (world.dead()["p0"].attempts, world.dead()["p0"].reason) == (
            most,
            f"gave up after {most} attempts: answered 500",
        )
        world.redrive("p0")
    assert hand.run(60_000, lambda held: OK) == ["p0"]
    assert (world.records(), world.dead()) == ({}, {})


def test_alone_a_message_of_which_nothing_was_taken_is_kept_and_burns_no_attempts(world: OneQueue) -> None:
    """E3: A message of which the target took nothing is not poisoned: it is kept."""
    hand = world.take_over()
    world.add("m0", max_attempts=3)
    hand.run(1_500, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    tries = len(hand.run(600_000, lambda held: AWAY))
    assert 10 < tries < 40
    assert (world.state_of("m0"), world.attempts_of("m0"), world.dead()) == ("parked", 2, {})
    hand.run(60_000, lambda held: OK)
    assert world.records() == {}


def test_after_three_different_messages_it_is_the_target(world: OneQueue) -> None:
    hand = fail_alone(world, "m0")
    for number in (1, 2):
        world.add(f"m{number}", at=world.elapsed)
        assert f"m{number}" in hand.settle()
        hand.answer(f"m{number}", BROKEN)
    world.add("m3", at=world.elapsed)
    assert "m3" not in hand.settle()
    hand.run(5_000, lambda held: BROKEN)
    assert {id: (world.state_of(id), world.attempts_of(id)) for id in ("m1", "m2", "m3")} == {
        "m1": ("parked", 1),  # so far it might have been its own fault
        "m2": ("parked", 0),
        "m3": ("parked", 0),
    }


def test_of_many_at_once_only_as_many_try_as_it_takes(world: OneQueue) -> None:
    hand = fail_alone(world, "m0")
    world.add_many((f"n{number:02}" for number in range(30)), at=world.elapsed)
    tried = hand.settle()
    assert tried[:2] == ["n00", "n01"]
    assert len(tried) <= 2 + PROBES
    hand.answer_all(OK)
    hand.run(100, lambda held: BROKEN if held.id == "m0" else OK)
    assert sorted(world.records()) == ["m0"]


# -- a target that asks to be left alone for a while -----------------------------------------------------------------------

PAUSE = 60_000  # far beyond the back-off of these tests, which is at most a second


@pytest.mark.parametrize("key", ["", "k"], ids=["without-key", "with-key"])
@pytest.mark.parametrize("make", [Result.unavailable, Result.unknown])
def test_a_failed_message_is_not_sent_again_before_the_pause_that_the_target_asked_for(
    world: OneQueue, key: str, make: Callable[..., Result]
) -> None:
    hand = world.take_over()
    world.add("m", ordering_key=key)
    hand.settle()
    hand.answer("m", make("busy", after=PAUSE))
    assert hand.run(PAUSE - 1) == []
    assert hand.run(2_000, lambda held: OK) == ["m"]
    assert world.records() == {}


def test_the_permits_after_a_pause_are_those_of_the_queue_that_asked_first_until_a_probe_has_failed() -> None:
    clock = ManualClock()
    circuit = Circuit(clock)
    assert circuit.permits("first") == 0, "it is closed"
    circuit.sent(False, full=True)
    clock.advance(FIRST_PAUSE)
    assert (circuit.permits("first"), circuit.permits("second")) == (PROBES, 0)
    assert [circuit.admits(held("m"), queue) for queue in ("second", "first")] == [Probe.NONE, Probe.PERMITTED]
    assert circuit.permits("first") == PROBES - 1
    circuit.return_permit()
    assert circuit.permits("first") == PROBES
    circuit.sent(False)
    assert circuit.permits("first") == 0
    clock.advance(2 * FIRST_PAUSE)
    assert (circuit.permits("second"), circuit.permits("first")) == (PROBES, 0)
    circuit.sent(True)
    circuit.return_permit()
    assert circuit.permits("second") == 0


def test_an_open_circuit_waits_as_long_as_the_target_asked_also_by_a_send_that_was_on_its_way() -> None:
    clock = ManualClock()
    circuit = Circuit(clock)

    def is_closed_for(pause: int) -> None:
        clock.advance(pause - 1)
        assert circuit.permits(circuit) == 0
        clock.advance(1)
        assert circuit.permits(circuit) == PROBES

    for _ in range(FAILURES):
        circuit.sent(False, PAUSE)
    assert circuit.open
    is_closed_for(PAUSE)
    circuit.sent(False, 2 * PAUSE)
    is_closed_for(2 * PAUSE)
    circuit = Circuit(clock)
    for _ in range(FAILURES):
        circuit.sent(False)
    circuit.sent(False, PAUSE)
    clock.advance(FIRST_PAUSE + LONGEST_PAUSE)
    assert circuit.permits(circuit) == 0
    clock.advance(PAUSE)
    assert circuit.permits(circuit) == PROBES


def test_a_target_that_asked_for_a_pause_gets_it_unless_it_is_shorter_than_the_back_off_or_longer_than_the_longest(
    world: OneQueue,
) -> None:
    hand = world.take_over()
    world.add("m0")
    hand.settle()
    hand.answer("m0", Result.unavailable("busy", after=1))
    hand.settle()
    (due,) = world.tickets().values()
    assert due - START >= 50
    assert {make("", after=10**9).after for make in (Result.unavailable, Result.unknown)} == {LONGEST_AFTER}
    hand.run(70_000, lambda held: Result.unavailable("busy", 20_000))
    assert hand.senders["general"].circuit.open
    world.add("m1", at=world.elapsed)
    assert hand.settle() == []
    assert world.state_of("m1") == "parked"


# -- routes, and targets that are full -------------------------------------------------------------------------------------


def test_two_routes_to_one_target_have_a_circuit_and_parked_messages_each(worlds: Worlds) -> None:
    table = [
        Route(name="deleted", match="g.deleted", target="manual:"),
        Route(name="general", match="g.*", target="manual:"),
    ]
    world = worlds(table=table, bounds=BOUNDS)
    hand = world.take_over()

    def answer(held: InFlightMessage) -> Result:
        return Result.unavailable("there is no such topic") if held.topic == "g.deleted" else OK

    world.add_many((f"d{number}" for number in range(20)), topic="g.deleted", every=1)
    hand.run(1_500, answer)
    assert hand.senders["deleted"].circuit.open
    assert not hand.senders["general"].circuit.open
    world.add("other", at=world.elapsed)
    assert "other" in hand.settle()
    hand.run(1_000_000, answer)
    assert hand.parked == ["t:deleted"]
    assert sorted(world.records()) == sorted(f"d{number}" for number in range(20))
    assert world.dead() == {}


def test_a_full_target_opens_its_circuit_at_once_and_burns_nothing_however_often_it_is_full(world: OneQueue) -> None:
    hand = world.take_over()
    world.add_many((f"m{number:02}" for number in range(30)), every=1)
    world.advance(30)
    hand.settle()
    hand.answer("m00", Result.full("no room"))
    assert hand.senders["general"].circuit.open
    hand.run(300_000, lambda held: Result.full("no room"))
    assert {(world.state_of(id), world.attempts_of(id)) for id in world.records()} == {("parked", 0)}
    for _ in range(40):  # room for few at a time
        room = [3]

        def answer(held: InFlightMessage, room: list[int] = room) -> Result:
            room[0] -= 1
            return OK if room[0] >= 0 else Result.full("no room")

        hand.run(31_000, answer)
    assert (world.records(), world.dead()) == ({}, {})


# -- a target that breaks while its topics are limited ---------------------------------------------------------------------

NEVER_BIND = ['"rate": 100000', '"maxInFlight": 1000', '"rate": 100000, "maxInFlight": 1000']
BIND = ['"rate": 2, "burst": 2, "per": "policy"', '"maxInFlight": 1', '"rate": 2, "burst": 2, "maxInFlight": 1']


def break_and_mend(worlds: Worlds, policy: str) -> list[int]:
    """A target is down for 8 s. When it was asked after that, in ms, until 20 s have passed."""
    world = worlds()
    hand = world.take_over()
    world.change(Change("policy:p", f'{{"match": "g.*", {policy}}}'))
    world.add_many((f"m{number}" for number in range(10)), at=0)
    hand.run_until(8_000, lambda held: AWAY)
    times: list[int] = []

    def answer(held: InFlightMessage) -> Result:
        times.append(world.elapsed - 8_000)
        return OK

    hand.run_until(28_000, answer)
    return times


@pytest.mark.parametrize("policy", NEVER_BIND + BIND)
def test_a_target_that_is_well_again_is_found_so_and_gets_everything_also_where_its_topics_are_limited(
    worlds: Worlds, policy: str
) -> None:
    times = break_and_mend(worlds, policy)
    assert times[0] < 16_000
    assert len(times) == 10


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_permit_is_used_up_by_what_is_sent_alone(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    if forgotten:
        monkeypatch.setattr(Circuit, "return_permit", lambda self: None)
    world = worlds()
    hand = world.take_over()
    world.add_many((f"m{number}" for number in range(10)), at=0)
    hand.run(1_500, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    world.change(Change("policy:p", '{"match": "g.*", "rate": 5}'))
    before, share = len(hand.sent), hand.job.in_flight.shares["general"]
    while not share.limited:
        hand.run(50)  # nobody asks the bucket
    hand.job.failed()
    assert len(hand.sent) == before
    assert share.may_come_back(10) == (0 if forgotten else PROBES)


def test_a_probe_that_waits_for_a_permit_keeps_its_turn(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.add_many((f"m{number}" for number in range(10)), at=0)
    hand.run(1_500, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    world.change(Change("policy:p", '{"match": "g.*", "rate": 5}'))
    while not hand.job.in_flight.shares["general"].limited:
        hand.run(50)
    assert hand.sending == []
    hand.limits.tick()
    assert len(hand.sending) == PROBES


def test_what_is_limited_stays_where_it_is_while_its_target_is_broken(worlds: Worlds) -> None:
    world = worlds()
    hand = world.take_over()
    world.change(Change("policy:p", '{"match": "g.*", "rate": 2, "burst": 2}'))
    world.add_many((f"m{number:02}" for number in range(40)), at=0)
    hand.run_until(10_000, lambda held: AWAY)
    assert hand.senders["general"].circuit.open
    assert world.aside()["h:g.t"] >= 25, "it moves on when it may be a probe"


def test_a_target_refuses_messages_since_it_accepted_the_last_one_whatever_it_rejected_since(world: OneQueue) -> None:
    hand = fail_alone(world, "a", "b", "c")
    circuit = hand.senders["general"].circuit

    def since() -> int | None:
        return None if circuit.opened is None else circuit.opened.since

    first = since()
    assert first is not None
    rejects = {"a"}
    hand.run(60_000, lambda held: Result.rejected("no such field") if held.id in rejects else AWAY)
    assert world.dead().keys() == {"a"}, "its rejection has closed the circuit, and the others have opened it again"
    assert since() == first
    hand.run(120_000, lambda held: OK)
    assert since() is None
    world.add_many(["d", "e", "f"])
    hand.run(5_000, lambda held: AWAY)
    assert (since() or 0) > first
