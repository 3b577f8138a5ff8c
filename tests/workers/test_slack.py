"""How late messages may go out by the routes' `slack`: what falls due within it goes together, and never early."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from delayq.domain.routes import Route
from tests.workers.one_queue import GENERAL, OTHER, STREAMS, Hand, OneQueue

SLACK = 50


def having(worlds: Callable[..., OneQueue], *slacks: int) -> tuple[OneQueue, Hand]:
    """A queue whose routes have these."""
    table: list[Route] = [
        replace(route, slack=slack) for route, slack in zip((STREAMS, GENERAL, OTHER), slacks, strict=True)
    ]
    world = worlds(table=table)
    hand = world.take_over()
    hand.settle()
    return world, hand


def live(hand: Hand, ms: int) -> list[str]:
    """So much time passes, and the job looks when it wants to; what was sent meanwhile."""
    start = len(hand.sent)
    for _ in range(ms):
        while hand.job.wants_to_look(hand.world.elapsed):
            hand.tick()
        hand.world.advance(1)
    while hand.job.wants_to_look(hand.world.elapsed):
        hand.tick()
    return hand.sent[start:]


def test_what_falls_due_within_it_goes_together_and_no_later_also_at_a_wake(worlds: Callable[..., OneQueue]) -> None:
    world, hand = having(worlds, SLACK, SLACK, SLACK)
    world.add("later", at=500)
    live(hand, 1)
    for id, at in (("a", 100), ("b", 130), ("c", 100 + SLACK), ("d", 101 + SLACK)):
        world.add(id, at=at)
    assert live(hand, 98 + SLACK) == []
    assert live(hand, 1) == ["a", "b", "c"]
    assert live(hand, SLACK) == []
    assert live(hand, 1) == ["d"]


@pytest.mark.parametrize("place", range(3))
def test_a_queue_goes_by_the_smallest_of_the_table(worlds: Callable[..., OneQueue], place: int) -> None:
    world, hand = having(worlds, *(10 if number == place else SLACK for number in range(3)))
    world.add("a", at=100)
    assert live(hand, 109) == []
    assert live(hand, 1) == ["a"]


def test_who_has_something_due_goes_along_with_others_and_is_not_early(worlds: Callable[..., OneQueue]) -> None:
    world, hand = having(worlds, SLACK, SLACK, SLACK)
    world.add("a", at=100)
    world.add("b", at=101)
    hand.settle()
    world.advance(99)
    assert not hand.job.goes_along(99.0)
    world.advance(1)
    assert hand.job.goes_along(100.0)
    assert not hand.job.wants_to_look(100.0)
    assert hand.settle() == ["a"]
