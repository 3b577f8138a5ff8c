"""Failures: when it is tried again, when a message is given up, and what its dead letter says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from delayq.domain.policies import Policies, Policy
from delayq.domain.routes import Route
from delayq.targets import OK, Delivery, Result
from delayq.testing import ManualClock
from tests.workers.conftest import Worlds
from tests.workers.desk import held
from tests.workers.one_queue import GENERAL, OTHER, START, STREAMS, OneQueue
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff
from workers.sending.message import InFlightMessage
from workers.sending.sender import Sender

AWAY = Result.unavailable("the broker is away")


def test_the_back_off_doubles_up_to_its_cap_and_is_spread_over_its_upper_half() -> None:
    for failed, most in {1: 100, 2: 200, 3: 400, 4: 800, 5: 1_000, 6: 1_000, 10_000: 1_000}.items():
        delays = {Backoff(100, 1_000).delay(failed) for _ in range(500)}
        assert min(delays) >= most // 2
        assert max(delays) <= most
        assert len(delays) > 20  # not all at the same moment
    assert {Backoff(1, 1).delay(1) for _ in range(50)} == {1}


def test_a_failed_message_waits_its_back_off_and_says_that_it_is_retrying(world: OneQueue) -> None:
    hand = world.take_over()
    world.add("m")
    hand.settle()
    hand.answer("m", AWAY)
    hand.settle()
    (due,) = world.tickets().values()
    assert 50 <= due - world.now <= 100
    assert (world.state_of("m"), world.attempts_of("m")) == ("retrying", 1)
    assert hand.run(due - world.now - 1) == []
    assert hand.run(2) == ["m"]
    hand.answer("m", Result.unknown("timed out"))
    hand.settle()
    (again,) = world.tickets().values()
    assert 100 <= again - world.now <= 200
    assert world.attempts_of("m") == 2
    assert hand.run(200, lambda held: OK) == ["m"]
    assert world.records() == {}


def test_a_target_is_told_which_attempt_it_is_and_the_due_that_was_asked_for(world: OneQueue) -> None:
    hand = world.take_over()
    world.add("m", at=7)
    seen: list[tuple[int, int]] = []

    def answer(held: InFlightMessage) -> Result:
        seen.append((held.attempt, held.due - START))
        return AWAY if held.attempt < 3 else OK

    hand.run(1_000, answer)
    assert seen == [(1, 7), (2, 7), (3, 7)]


@pytest.mark.parametrize("key", ["", "k"], ids=["without-key", "with-key"])
def test_attempts_end_by_the_message_then_a_policy_then_the_route_then_the_setting(worlds: Worlds, key: str) -> None:
    world = worlds(
        table=[STREAMS, GENERAL, Route(name="other", match="o.*", target="manual:", max_attempts=2)],
        bounds=Bounds(max_attempts=4, backoff=Backoff(1, 1)),
    )
    hand = world.take_over()
    policy = Policy(name="p", match="?.policy", max_attempts=5, backoff=(2, 1))
    hand.policies.current = Policies(policies={"p": policy})
    for id, topic, own in (
        ("by-message", "o.policy", 3), ("by-policy", "o.policy", None), ("by-route", "o.t", None),
        ("by-setting", "g.t", None),
    ):  # fmt: skip
        world.add(id, topic=topic, max_attempts=own, ordering_key=f"{key}{id}" if key else "")
        for sender in hand.senders.values():
            sender.circuit.sent(True)  # only the attempts are looked at here
        hand.run(50, lambda held: (hand.senders[held.route.name].circuit.sent(True), AWAY)[1] if held.route else OK)
    dead = world.dead()
    made = {"by-message": 3, "by-policy": 5, "by-route": 2, "by-setting": 4}
    assert {id: one.attempts for id, one in dead.items()} == made
    assert dead["by-message"].reason == "gave up after 3 attempts: the broker is away"
    assert hand.sent == [id for id, attempts in made.items() for _ in range(attempts)]


def test_a_policy_says_how_long_to_wait_each_time(world: OneQueue) -> None:
    hand = world.take_over()
    hand.policies.current = Policies(policies={"p": Policy(name="p", match="*", max_attempts=9, backoff=(30, 900))})
    world.add("m")
    hand.settle()
    waits = []
    for _ in range(3):
        hand.senders["general"].circuit.sent(True)  # only the waits are looked at here
        hand.answer("m", AWAY)
        hand.settle()
        (due,) = world.tickets().values()
        waits.append(due - world.now)
        hand.run(waits[-1])
    assert waits == [30, 900, 900]


def test_a_message_past_its_time_is_not_sent_but_buried_as_expired_and_in_time_means_before_the_last_millisecond(
    world: OneQueue,
) -> None:
    for id, topic, key in (("general", "g.t", ""), ("keyed", "g.t", "k"), ("stream", "s.t", "")):
        world.add(f"late-{id}", topic=topic, expire_after=50, ordering_key=key)
        world.add(id, topic=topic, expire_after=51, ordering_key=key)
    world.advance(50)
    assert world.take_over().settle() == ["general", "keyed"]
    assert world.stream("s.t") == ["stream"]
    assert {id: one.reason for id, one in world.dead().items()} == dict.fromkeys(
        ["late-general", "late-keyed", "late-stream"], "expired"
    )


@pytest.mark.parametrize("key", ["", "k"], ids=["without-key", "with-key"])
def test_a_message_that_fails_until_its_time_is_over_is_buried_as_expired(world: OneQueue, key: str) -> None:
    world.add("m", expire_after=50, max_attempts=50, ordering_key=key)
    hand = world.take_over()
    assert hand.settle() == ["m"]
    hand.answer("m", AWAY)
    assert hand.run(1_000) == []
    assert world.dead()["m"].reason == "expired"


# -- targets that do not keep their word ---------------------------------------------------------------------------


@dataclass
class Odd:
    """A target that does what it should not."""

    how: object
    max_batch: int = 3
    sizes: list[int] = field(default_factory=list)

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        self.sizes.append(len(batch))
        if isinstance(self.how, BaseException):
            raise self.how
        assert isinstance(self.how, int)
        return [OK] * (len(batch) + self.how)

    def close(self) -> None: ...


def some(count: int) -> list[InFlightMessage]:
    return [held(f"m{number}") for number in range(count)]


def sender(how: object) -> Sender:
    return Sender(OTHER, Odd(how), ManualClock(), threads=1, timeout=1_000)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (KeyError("surprise"), "KeyError: 'surprise'"),
        (SystemExit("a library gave up"), "SystemExit: a library gave up"),
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (-1, "every message"),
        (1, "every message"),
    ],
)
def test_an_exception_and_an_answer_for_fewer_or_more_messages_than_given_are_unknown_for_all(
    how: object, reason: str
) -> None:
    results = sender(how).send(some(3))
    assert [result.outcome for result in results] == ["unknown"] * 3
    assert reason in results[0].reason


def test_no_target_gets_more_at_once_than_it_takes() -> None:
    odd = Odd(0)
    results = Sender(OTHER, odd, ManualClock(), threads=1, timeout=1_000).send(some(8))
    assert odd.sizes == [3, 3, 2]
    assert results == [OK] * 8
