from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import Client, Message, Settings
from delayq.client.operations import Scheduled
from delayq.testing import MemoryTarget
from tests.support.nodes import QUEUES

Due = dict[str, Any]


@pytest.fixture(autouse=True)
def quick_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node looks more often whether it is to stop; nothing else depends on these."""
    monkeypatch.setattr("workers.node.wakes.RECEIVE", 0.1)
    monkeypatch.setattr("workers.node.node.ROUND", 100)


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    """Where topics that begin with 'm.' go."""
    made = MemoryTarget()
    yield made
    made.behave()


@pytest.fixture
def clients() -> Iterator[Callable[..., Client]]:
    """Makes clients and closes them."""
    made: list[Client] = []

    def make(url: str, **given: Any) -> Client:
        # They look at what nodes and other clients go through: how long Redis takes to answer is not their subject.
        made.append(Client(url, settings=Settings(queues=QUEUES, redis_timeout=30_000, **given)))
        return made[-1]

    yield make
    for client in made:
        client.close()


def schedule_all(client: Client, topic: str, count: int, **fields: Any) -> list[str]:
    """Schedule messages that are due at once, and return their ids."""
    fields = {"delay_time": 0} | fields
    outcomes = client.schedule_many(Message(topic=topic, body=str(number), **fields) for number in range(count))
    ids = [outcome.id for outcome in outcomes if isinstance(outcome, Scheduled)]
    assert len(ids) == count, outcomes
    return ids


def pending(client: Client) -> int:
    """How many messages stand in the queues, or are parked."""
    return sum(stats.scheduled + stats.parked for stats in client.stats())
