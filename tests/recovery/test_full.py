"""Redis has reached its maxmemory: what is there is delivered all the same, by each kind of server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from delayq import Client, Message, StoreFull
from delayq.client.operations import Scheduled
from delayq.testing import MemoryTarget
from tests.recovery.conftest import pending, stream_ids
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

Clients = Callable[..., Client]


@pytest.fixture
def small(real: ServerUnderTest) -> Iterator[ServerUnderTest]:
    """A server with room for about 2 MB more."""
    allow(real, 2_000_000)
    yield real
    real.admin.config_set("maxmemory", 0)


def allow(server: ServerUnderTest, more: int) -> None:
    """Set maxmemory so many bytes above (or below) what is used now."""
    used = server.admin.info("memory")["used_memory"]
    server.admin.config_set("maxmemory", used + more)


def fill(client: Client, topic: str) -> list[str]:
    """Schedule messages that are due at once until there is no room; the ids of those that were accepted."""
    ids: list[str] = []
    for _ in range(200):
        outcomes = client.schedule_many(Message(topic=topic, delay_time=0, body="x" * 500) for _ in range(100))
        ids += [outcome.id for outcome in outcomes if isinstance(outcome, Scheduled)]
        if any(isinstance(outcome, StoreFull) for outcome in outcomes):
            return ids
    raise AssertionError("it never gets full")


def test_a_full_redis_goes_on_to_append_to_its_streams(
    small: ServerUnderTest, target: MemoryTarget, clients: Clients
) -> None:
    client = clients(small.url)
    ids = fill(client, "s")
    allow(small, -300_000)
    with RunningNode(settings_for(small.url, target)):
        eventually(lambda: pending(client) == 0, "everything is appended")
    assert sorted(stream_ids(small, "s")) == sorted(ids)


def test_a_redis_that_fills_while_a_node_delivers_loses_nothing(
    small: ServerUnderTest, target: MemoryTarget, clients: Clients
) -> None:
    client = clients(small.url)
    target.answer("hang")
    with RunningNode(settings_for(small.url, target, max_attempts=1_000)):
        ids = fill(client, "m.t")
        allow(small, -100_000)
        target.wait_for_hanging()
        target.behave()
        target.wait_for_ids(ids, timeout=30)
        eventually(lambda: pending(client) == 0, "everything is acked")
