"""A connection that breaks in the middle of an owner's tick: nothing is sent a second time, and it costs one tick."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.store.connect.store import Store
from delayq.targets import OK, Result
from tests.support.proxy import FaultProxy
from tests.workers.one_queue import OneQueue

#: The longest pause after one tick without an answer, in ms.
PAUSE = 50


@pytest.fixture
def world(proxy: FaultProxy) -> Iterator[OneQueue]:
    store = Store(proxy.url)
    made = OneQueue(store)
    yield made
    made.close()
    store.close()


@pytest.mark.parametrize("script", ["pull", "ack", "retry", "park", "unpark"])
def test_what_an_owner_sent_is_not_sent_again_by_the_store(world: OneQueue, proxy: FaultProxy, script: str) -> None:
    for number in range(40):  # more of one key than a lane holds: some are parked
        world.add(f"{number:02}", at=number, ordering_key="k")
    world.advance(100)
    hand = world.take_over()
    proxy.drop_reply(script)
    answers = [Result("unavailable", "away")]
    for _ in range(1_000):
        before = hand.job._tenure.incarnation.name
        proxy.commands.clear()
        hand.tick()
        if proxy.dropped:
            break
        hand.answer_all(answers.pop() if answers and hand.sending else OK)
        world.advance(max(1, round(hand.pause)))
    assert proxy.dropped == [script]
    assert proxy.commands.count(script) == 1
    assert 0 < hand.pause <= PAUSE
    assert hand.job._tenure.incarnation.name > before
    hand.run(60_000, lambda _: OK)
    assert [world.stats().scheduled, world.stats().parked] == [0, 0]
