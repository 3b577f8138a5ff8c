"""A queue moved on by hand, and nodes that run in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.store.connect.store import Store
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
from tests.workers.desk import Desk
from tests.workers.one_queue import OneQueue

Worlds = Callable[..., OneQueue]
Desks = Callable[..., Desk]


@pytest.fixture(autouse=True)
def patience_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for a Redis that a busy machine keeps silent."""
    monkeypatch.setenv("DELAYQ_REDIS_TIMEOUT", str(REDIS_TIMEOUT))


@pytest.fixture
def worlds(valkey: ServerUnderTest) -> Iterator[Worlds]:
    """Makes worlds of one queue with routes and a policy of the test's own."""
    made: list[OneQueue] = []

    def make(**options: Any) -> OneQueue:
        made.append(OneQueue(Store(valkey.url, timeout=PATIENCE), **options))
        return made[-1]

    yield make
    for world in made:
        world.close()
        world.store.close()


@pytest.fixture
def world(worlds: Worlds) -> OneQueue:
    """A queue with a route into local streams (s.*) and two general ones (g.*, o.*)."""
    return worlds()


@pytest.fixture
def desks() -> Iterator[Desks]:
    """Makes senders into memory."""
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(**options))
        return made[-1]

    yield make
    for desk in made:
        desk.close()
