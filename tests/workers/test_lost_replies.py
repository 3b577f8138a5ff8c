"""A connection that breaks in the middle of an owner's tick: nothing is sent a second time, and it costs one tick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from tests.support.proxy import FaultProxy
from tests.support.timeouts import PATIENCE
from tests.workers.one_queue import OneQueue
from workers.queue import settlement
from workers.queue.pull import LEAST_BYTES, MOST_BYTES

#: The longest pause after one tick without an answer, in ms.
PAUSE = 50


@pytest.fixture
def world(proxy: FaultProxy) -> Iterator[OneQueue]:
    store = Store(proxy.url, timeout=PATIENCE)
    made = OneQueue(store)
    yield made
    made.close()
    store.close()


@pytest.mark.parametrize("script", ["pull", "ack", "retry", "park", "release"])
def test_what_an_owner_sent_is_not_sent_again_by_the_store(world: OneQueue, proxy: FaultProxy, script: str) -> None:
    for number in range(40):  # more of one key than a lane holds: some are parked
        world.add(f"{number:02}", at=number, ordering_key="k")
    world.advance(100)
    hand = world.take_over()
    proxy.drop_reply(script)
    answers = [Result("unavailable", "away")]
    for _ in range(1_000):
        before = hand.job._context.incarnation.name
        proxy.commands.clear()
        hand.tick()
        if proxy.dropped:
            break
        hand.answer_all(answers.pop() if answers and hand.sending else OK)
        world.advance(max(1, round(hand.pause)))
    assert proxy.dropped == [script]
    assert proxy.commands.count(script) == 1
    assert 0 < hand.pause <= PAUSE
    assert hand.job._context.incarnation.name > before
    assert hand.job.in_flight._offset.place == (0, b""), "it pulls again from the head of the queue"
    hand.run(60_000, lambda _: OK)
    assert [world.stats().scheduled, world.stats().parked] == [0, 0]


def test_what_stands_behind_an_error_is_told_again_with_it(world: OneQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "CHUNK", 5)
    world.add_many((f"{number}" for number in range(8)), every=1)
    world.advance(10)
    hand = world.take_over()
    hand.settle()
    hand.answer_all()
    first, *others = world.store.run_many(hand.job.ask())
    assert not isinstance(first, StoreError)
    hand.job.take([StoreError("BUSY"), *others])
    hand.settle()
    assert hand.job.in_flight.messages == {}
    assert world.stats().scheduled == 0


def test_a_pull_that_was_not_heard_is_followed_by_smaller_ones(
    world: OneQueue, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13: A pull whose reply takes longer than 8 s counts as lost, and the next one asks for half as much, down to
    one message.

    That message has to pass within 8 s.
    """
    asked: list[int] = []
    pull = commands.pull

    def noting(*given: Any, **named: Any) -> Any:
        asked.append(named["most_bytes"])
        return pull(*given, **named)

    monkeypatch.setattr(commands, "pull", noting)
    hand = world.take_over()
    hand.tick()
    for _ in range(12):
        world.advance(1_000)
        proxy.drop_reply("pull")
        hand.tick()
    world.advance(1_000)
    for _ in range(3):
        hand.tick()
        world.advance(1_000)
    assert asked[:4] == [MOST_BYTES, MOST_BYTES, MOST_BYTES // 2, MOST_BYTES // 4]
    assert asked[13:] == [LEAST_BYTES, 2 * LEAST_BYTES, 4 * LEAST_BYTES]
