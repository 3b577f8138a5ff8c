"""The embedded server's Unix socket, and everything that talks to Redis by it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
import redis

from delayq import AsyncClient, Client, Message, Settings
from delayq.base.clock import SystemClock
from delayq.base.errors import StoreUnavailable
from delayq.doctor import examine
from delayq.domain.routes import Route
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.targets.redis_stream.target import is_local
from tests.support.servers import KEPT
from tests.support.timeouts import PATIENCE

HOUR = 3_600_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(data_dir=tmp_path / "da ta", extra=KEPT) as running:
        yield running


def path_of(server: EmbeddedServer) -> Path:
    return Path(unquote(urlsplit(server.socket_url).path))


def test_it_leads_to_the_same_server_also_after_a_crash_and_nobody_else_may_enter_its_folder(
    server: EmbeddedServer,
) -> None:
    path = path_of(server)
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    by_port = Route(name="r", target=server.url.replace("redis://", "redis+stream://"))
    assert is_local(by_port, server.socket_url)
    assert not is_local(msgspec.structs.replace(by_port, target=f"redis+stream://{LOCALHOST}:1"), server.socket_url)
    with Client(server.socket_url) as client:
        assert client.schedule(Message(topic="t", delay_time=HOUR, id="a")).created
        server.kill()
        with pytest.raises(StoreUnavailable):
            client.schedule(Message(topic="t", delay_time=HOUR, id="b"))
        server.start()
        assert client.schedule(Message(topic="t", delay_time=HOUR, id="b")).created
    with Client(server.url) as client:
        assert [found and found.id for found in client.get_many(["a", "b"])] == ["a", "b"]


def test_a_data_folder_with_a_long_name_has_its_socket_elsewhere(tmp_path: Path) -> None:
    with EmbeddedServer(data_dir=tmp_path / ("x" * 100)) as server:
        path = path_of(server)
        assert tmp_path not in path.parents
        with redis.Redis.from_url(server.socket_url) as client:
            assert client.ping()
    assert not path.parent.exists()


async def test_every_kind_of_connection_works_by_it(server: EmbeddedServer) -> None:
    async with AsyncClient(server.socket_url) as client:
        assert (await client.schedule(Message(topic="t", delay_time=HOUR, id="a"))).created
        assert sum(one.scheduled for one in await client.queues()) == 1
    store = Store(server.socket_url, timeout=PATIENCE)
    found = {check.name: check for check in examine(store, Settings(), SystemClock())}
    assert "a Unix socket" in found["password"].text
    wakes = Wakes(store.connect)
    wakes.connect(["one"])
    assert wakes.receive(PATIENCE) == ("", b"")
    with redis.Redis.from_url(server.url) as admin:
        admin.publish("one", "1")
    assert wakes.receive(PATIENCE) == ("one", b"1")
    wakes.close()
    store.close()
