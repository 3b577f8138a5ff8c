"""The API in this process (over ASGI), on a socket of its own, and a worker's hand to move messages on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.server import make_server
from delayq.config import Settings, load_settings
from delayq.domain.codec import Record
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout, QueueKeys
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH, Taken, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import HTTP_TIMEOUT, PATIENCE, REDIS_TIMEOUT

HOUR = 3_600_000
LIMIT = 10_000
Serving = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_search_ends_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends by what it has, however slow the machine is."""
    for name in ("SECONDS", "MOST_SECONDS"):
        monkeypatch.setattr(f"delayq.client.looking.search.{name}", 3_600)


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """The application, spoken to over ASGI."""
    app = create_app(settings)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api,
    ):
        yield api


@asynccontextmanager
async def on_a_socket(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """The application behind uvicorn."""
    settings = settings.replace(api_host=LOCALHOST, api_port=free_port())
    app = create_app(settings)
    server = make_server(app, settings, app.service.receivers.stop)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0)
    url = f"http://{LOCALHOST}:{settings.api_port}"
    try:
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=HTTP_TIMEOUT) as api:
            yield api
    finally:
        server.stop()
        await serving


@pytest.fixture
def settings(valkey: ServerUnderTest) -> Settings:
    return load_settings(redis_url=valkey.url, redis_timeout=REDIS_TIMEOUT)


@pytest.fixture
def asgi() -> Serving:
    """Starts an API of given settings in this process."""
    return in_process


@pytest.fixture
def socket() -> Serving:
    """Starts an API of given settings on a socket."""
    return on_a_socket


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """An API on an empty store."""
    async with in_process(settings) as client:
        yield client


class Worker:
    """Does by hand what a worker does, for one message at a time."""

    def __init__(self, url: str) -> None:
        self.store = Store(url, timeout=PATIENCE)

    @staticmethod
    def _keys(id: str) -> QueueKeys:
        return KEYS.queue(Layout(16).queue_of(id))

    def pull(self, id: str) -> Taken:
        """Take a message that is due; now it is in flight."""
        pulled = self.store.run(commands.pull(self._keys(id), EPOCH, offset=0, room=500))
        (one,) = [one for one in taken(pulled) if one.id == id]
        return one

    def deliver(self, id: str) -> None:
        assert self.store.run(commands.ack(self._keys(id), EPOCH, [self.pull(id)])) == (True, 1)

    def bury(self, id: str, reason: str = "nobody wants it") -> None:
        one = self.pull(id)
        assert self.store.run(commands.bury(self._keys(id), EPOCH, [(one, one.attempts + 1, reason)])) == ["ok"]

    def park(self, id: str, name: str = "t:streams") -> None:
        assert self.store.run(commands.park(self._keys(id), EPOCH, name, [self.pull(id)])) is not None

    def bring_into(self, state: str, id: str) -> None:
        """Bring a message that is due into a state that a worker brings it into; nothing for other states."""
        match state:
            case "inFlight":
                self.pull(id)
            case "parked":
                self.park(id)
            case "dead":
                self.bury(id)
            case "delivered":
                self.deliver(id)

    def record(self, id: str) -> Record:
        """The record in the pool."""
        raw: Any = self.store.run(commands.plain("HGET", self._keys(id).pool, id, read=lambda reply: reply))
        return Record(raw)


@pytest.fixture
def worker(valkey: ServerUnderTest) -> Iterator[Worker]:
    made = Worker(valkey.url)
    yield made
    made.store.close()


class Tenants:
    """An API, and those who use it, each by the key of a name."""

    def __init__(self, api: httpx2.AsyncClient, keys: KeyFile) -> None:
        self.api = api
        self.keys = keys

    async def ask(self, name: str, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        known = {"authorization": f"Bearer {self.keys.texts[name]}"} | headers
        return await self.api.request(method, path, json=body, headers=known)

    async def schedule(self, name: str, topic: str, **fields: Any) -> str:
        answer = await self.ask(name, "POST", "/v1/messages", {"topic": topic, "delayTime": HOUR} | fields)
        assert answer.status_code == 201, answer.text
        id: str = answer.json()["id"]
        return id


async def until_status(status: int, api: httpx2.AsyncClient, headers: dict[str, str] | None = None) -> None:
    """Ask again until the status of the answer is this one: nobody is told when the API has read its file of keys."""
    while (await api.get("/v1/me", headers=headers)).status_code != status:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def schedule(api: httpx2.AsyncClient, **message: Any) -> str:
    answer = await api.post("/v1/messages", json={"topic": "orders", "delayTime": HOUR} | message)
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


async def bring_into(state: str, api: httpx2.AsyncClient, worker: Worker, queue: int = 0, **fields: Any) -> str:
    """A message in this state, in a queue that has no other."""
    delay = HOUR if state in ("scheduled", "cancelled") else 0
    id = await schedule(api, delayTime=delay, id=f"m.{queue:04x}", **fields)
    if state == "cancelled":
        assert (await api.delete(f"/v1/messages/{id}")).status_code == 200
    if state == "removedInFlight":
        assert (await api.delete(f"/v1/messages/{id}")).status_code == 202
    worker.bring_into("dead" if state == "discarded" else state, id)
    if state == "discarded":
        assert (await api.delete(f"/v1/dead-letters/{id}")).status_code == 200
    return id


#: How a message may have ended.
ENDS = ["delivered", "cancelled", "removedInFlight", "discarded"]


@pytest.fixture
async def untouched(api: httpx2.AsyncClient) -> AsyncIterator[httpx2.AsyncClient]:
    """An API that has not scheduled anything when the test is over."""
    yield api
    assert (await api.get("/v1/queues")).json()["total"]["counters"]["scheduled"] == 0


def assert_refused(answer: httpx2.Response, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:delayq:problem:")
    assert problem["title"]
    assert problem["detail"]
    return problem


@pytest.fixture
async def small(settings: Settings, socket: Serving) -> AsyncIterator[httpx2.AsyncClient]:
    """An API on a socket that takes requests of up to 10,000 bytes and bodies of 5,000."""
    async with socket(settings.replace(request_limit=LIMIT, body_limit=5_000)) as client:
        yield client


async def connect(client: httpx2.AsyncClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(client.base_url.host, client.base_url.port)


async def talk(client: httpx2.AsyncClient, sent: bytes) -> str:
    """What a connection answers until it is closed by the server, or has sent one whole answer."""
    reader, writer = await connect(client)
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    body = await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    return (head + body).decode()


def assert_away(answer: httpx2.Response, status: int = 503) -> dict[str, Any]:
    assert answer.headers["retry-after"] == "1"
    return assert_refused(answer, status)
