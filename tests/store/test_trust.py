"""What a client asks of a Redis before it changes anything; reading asks for nothing, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from delayq import AsyncClient, Client, ConfigError, Message, Settings
from delayq.embedded import EmbeddedServer
from tests.support.clusters import Member
from tests.support.proxy import FaultProxy

HOUR = 3_600_000

CHANGES: dict[str, Callable[[Any], Any]] = {
    "schedule": lambda client: client.schedule(Message(topic="t", delay_time=HOUR, id="new")),
    "cancel": lambda client: client.cancel("there"),
    "cancel_by_key": lambda client: client.cancel_by_key("key"),
    "reschedule": lambda client: client.reschedule("there", delay_time=HOUR),
    "redrive": lambda client: client.redrive(["there"]),
    "discard": lambda client: client.discard("there"),
}
READING: dict[str, Callable[[Any], Any]] = {
    "get": lambda client: client.get("there"),
    "find": lambda client: client.find("key"),
    "queues": lambda client: client.queues(),
    "dead_letters": lambda client: client.dead_letters(),
    "nodes": lambda client: client.nodes(),
}
LAX = {"no file": ["--appendonly", "no"], "eviction": ["--maxmemory-policy", "allkeys-lru"]}


@pytest.fixture(params=LAX)
def lax(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server that would lose messages."""
    with EmbeddedServer(data_dir=tmp_path, extra=LAX[request.param]) as running:
        yield running


def is_empty(server: EmbeddedServer) -> bool:
    with closing(Member(server).admin) as admin:
        return bool(admin.dbsize() == 0)


async def test_a_redis_that_would_lose_messages_is_refused_and_left_as_it_is(lax: EmbeddedServer) -> None:
    """A7: API and worker refuse to start; clients and the command line refuse to change anything.

    The same holds without an append-only file.
    """
    async with AsyncClient(lax.url) as other:
        for look in READING.values():  # asks for nothing, and writes nothing
            with Client(lax.url) as client:
                look(client)
            await look(other)
        for change in CHANGES.values():
            with Client(lax.url) as client:
                for _ in range(2):
                    with pytest.raises(ConfigError, match="this Redis cannot be trusted"):
                        change(client)
            with pytest.raises(ConfigError, match="this Redis cannot be trusted"):
                await change(other)
        assert is_empty(lax)
        server = Member(lax)
        with Client(lax.url) as client, closing(server.admin) as admin:
            with pytest.raises(ConfigError):
                CHANGES["schedule"](client)
            admin.config_set("appendonly", "yes")
            admin.config_set("maxmemory-policy", "noeviction")
            assert CHANGES["schedule"](client).created  # it is set right
            assert (await CHANGES["cancel"](other)).result == "notFound"
            server.wait_for_its_file()


def test_it_is_asked_once_for_each_client_and_readers_learn_what_its_first_user_agrees_on(
    own_valkey: EmbeddedServer,
) -> None:
    with FaultProxy(own_valkey.port) as proxy, Client(own_valkey.url) as reader:
        assert (reader.get("a"), len(reader.queues())) == (None, 16)
        with Client(proxy.url, settings=Settings(queues=5)) as first:
            for id in "abc":
                first.schedule(Message(topic="t", delay_time=HOUR, id=id))
                assert first.get(id) is not None
        assert [name for name in proxy.commands if name in ("info", "layout")] == ["info", "layout"]
        assert reader.get("a") is not None
        assert len(reader.queues()) == 5
