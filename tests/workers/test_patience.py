"""What was confirmed waits for the next pull, if that comes soon and nothing waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from delayq.targets import Result
from tests.protocol.world import NodeClock
from tests.workers.conftest import Worlds
from tests.workers.one_queue import Hand, OneQueue
from workers.queue.pull_job import PATIENCE


class Waits(NodeClock):
    """At the job's first wait something happens; counted is after how many ms of waiting it looks again."""

    def __init__(self, world: OneQueue, first: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__(world)
        self._world = world
        self._first = first
        self._end = end
        self._job = world.hands[-1].job
        self._waits = 0
        self.looked_after = -1
        self.then: list[str] = []  # what is there when it has looked

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        self._waits += 1
        if self._waits == 2:
            self.then = sorted(self._world.records())
        if self._waits > 1:
            self._end()
            return True
        self._first()
        self.looked_after = 0 if self._job._woken else round(timeout_ms)
        self._world.advance(self.looked_after)
        return self._job._woken


def after(world: OneQueue, hand: Hand, report: Callable[[], None]) -> Waits:
    """Run a job that hears this report while it waits for the first time."""

    def end() -> None:
        hand.job.stop()
        hand.answer_all()

    clock = Waits(world, report, end)
    hand.job._clock = clock
    hand.job.run()
    return clock


def given(worlds: Worlds, next_at: int, **options: Any) -> tuple[OneQueue, Hand]:
    """A message that is being sent, and one that is due in a while."""
    world = worlds()
    world.add("now", **options)
    world.add("next", at=next_at)
    return world, world.take_over()


def test_it_is_settled_with_the_next_pull(worlds: Worlds) -> None:
    world, hand = given(worlds, PATIENCE)
    ran = after(world, hand, lambda: hand.answer("now"))
    assert (ran.looked_after, ran.then) == (PATIENCE, ["next"])


def test_it_is_settled_at_once_if_the_next_pull_is_far_away(worlds: Worlds) -> None:
    world, hand = given(worlds, PATIENCE + 1)
    ran = after(world, hand, lambda: hand.answer("now"))
    assert (ran.looked_after, ran.then) == (0, ["next"])


@pytest.mark.parametrize(
    "result", [Result.rejected("no"), Result.unavailable("away"), Result.unknown("?"), Result.full("busy")]
)
def test_what_is_not_confirmed_is_heard_at_once(worlds: Worlds, result: Result) -> None:
    world, hand = given(worlds, PATIENCE)
    assert after(world, hand, lambda: hand.answer("now", result)).looked_after == 0


def test_a_message_with_an_ordering_key_is_heard_at_once_for_another_may_wait(worlds: Worlds) -> None:
    world, hand = given(worlds, PATIENCE, ordering_key="k")
    assert after(world, hand, lambda: hand.answer("now")).looked_after == 0


def test_while_something_waits_for_room_all_is_heard_at_once(worlds: Worlds) -> None:
    world, hand = given(worlds, PATIENCE)
    for number in range(60):
        world.add(f"more{number}")
    for _ in range(20):
        hand.tick()
    assert hand.job.in_flight.waiting
    assert after(world, hand, lambda: hand.answer(hand.sending[0])).looked_after == 0


def test_a_stop_is_heard_at_once(worlds: Worlds) -> None:
    world, hand = given(worlds, PATIENCE)
    assert after(world, hand, hand.job.stop).looked_after == 0
