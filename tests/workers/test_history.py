"""A Redis that went back in time is told by the next answer of each queue that lost something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from delayq.store import commands
from delayq.targets import OK
from tests.support.servers import ServerUnderTest
from tests.workers.one_queue import START, Hand, OneQueue
from workers.queue.symptoms import LossDetector

HOUR = 3_600_000


class Backup:
    """All keys of a server, as they were."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self._kept = {key: admin.dump(key) for key in admin.keys("*")}

    def restore(self) -> None:
        """What a fail-over or a restart leaves."""
        self._admin.flushall()
        for key, value in self._kept.items():
            self._admin.restore(key, 0, value)


def told(hand: Hand) -> list[str]:
    """What the look of the next second says."""
    hand.world.advance(1_000)
    with structlog.testing.capture_logs() as logs:
        hand.settle()
    return [one["text"] for one in logs if one["event"] == "went_back"]


def acked(world: OneQueue, hand: Hand) -> None:
    hand.answer("due")
    hand.settle()


LOST: dict[str, tuple[Callable[[OneQueue, Hand], Any], str]] = {
    "a message": (lambda world, _: world.add("new", at=HOUR), "from 2 scheduled messages to 1"),
    "a cancel": (lambda world, _: world.cancel("due"), "from 1 cancelled messages to 0"),
    "an ack": (acked, "from 1 forwarded messages to 0"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_was_lost_is_told_once_by_the_next_answer(world: OneQueue, valkey: ServerUnderTest, what: str) -> None:
    change, text = LOST[what]
    hand = world.take_over()
    world.add("due", at=1 if what == "an ack" else HOUR)
    world.advance(2)
    hand.settle()
    before = Backup(valkey.admin)
    change(world, hand)
    assert told(hand) == []
    before.restore()
    (said,) = told(hand)
    assert said.startswith(f"queue {world.keys.number} went back {text}: its Redis has lost its last changes")
    assert told(hand) == []


def test_a_loss_is_counted_for_each_queue_and_each_time_and_nothing_that_only_grows() -> None:
    losses = LossDetector()
    with structlog.testing.capture_logs() as logs:
        for counted in ((0, 0, 0), (5, 0, 0), (5, 3, 1), (5, 3, 1), (6, 3, 1)):
            losses.compare(3, counted)
            losses.compare(4, (1, 1, 1))
    assert (logs, losses.went_back) == ([], 0)
    for queue in (1, 2):
        losses.compare(queue, (9, 9, 9))
        losses.compare(queue, (8, 9, 9))
        losses.compare(queue, (10, 9, 9))
        losses.compare(queue, (10, 9, 8))
    assert losses.went_back == 4


def test_who_takes_a_queue_over_again_remembers_it(world: OneQueue, valkey: ServerUnderTest) -> None:
    losses = LossDetector()
    hand = world.take_over(losses=losses)
    before = Backup(valkey.admin)
    world.add("new", at=HOUR)
    hand.settle()
    before.restore()
    again = world.take_over(losses=losses)
    again.settle()
    assert losses.went_back == 1


def test_what_redis_lost_while_it_was_sent_takes_no_new_message_of_its_id_along(world: OneQueue) -> None:
    world.add("a")
    hand = world.take_over()
    assert hand.settle() == ["a"]
    world.store.run(commands.plain("FLUSHALL", read=lambda _: None))
    world.add("a", at=500, body="new")
    hand.answer("a")
    assert hand.settle() == []
    assert world.state_of("a") == "scheduled"
    assert hand.run(2_000, lambda held: OK) == ["a"]
    assert not world.tickets()


def test_an_ack_that_finds_another_due_makes_no_more_than_a_second_copy(world: OneQueue) -> None:
    world.add("a")
    hand = world.take_over()
    hand.settle()
    (ticket,) = world.tickets()
    world.store.run(commands.plain("ZADD", world.keys.queue, START - 5, ticket, read=lambda _: None))
    hand.answer("a")
    assert hand.run(2_000, lambda held: OK) == ["a"]
    assert not world.tickets()
