"""An API process, and clients of it and of its Redis."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Client, http
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from tests.api.test_process import Api, api_process
from tests.support.timeouts import REDIS_TIMEOUT


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DELAYQ_API_URL", "DELAYQ_API_KEY", "DELAYQ_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(data_dir=tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@pytest.fixture(scope="module")
def process(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API on a Redis of its own. No worker runs, so nothing is delivered."""
    with api_process(redis_url, tmp_path_factory.mktemp("api")) as started:
        yield started


@pytest.fixture
def direct(redis_url: str) -> Iterator[Client]:
    from delayq.config import load_settings

    with Client(settings=load_settings(redis_url=redis_url, redis_timeout=REDIS_TIMEOUT)) as client:
        yield client


class Awaited:
    """An AsyncClient whose methods are called without await, on a loop of its own."""

    def __init__(self, client: http.AsyncClient) -> None:
        self._client = client
        self._runner = asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **given: Any) -> Any:
            async def run() -> Any:
                return await method(*args, **given)

            return self._runner.run(run())

        return call

    def end(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(params=["threads", "asyncio"])
def client(request: pytest.FixtureRequest, process: Api) -> Iterator[Any]:
    """Both clients of the API, behind one face."""
    url = f"http://127.0.0.1:{process.port}"
    if request.param == "threads":
        with http.Client(url) as made:
            yield made
    else:
        awaited = Awaited(http.AsyncClient(url))
        yield awaited
        awaited.end()


def answer(status: int, body: Any, *headers: str) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def problem(status: int, kind: str, detail: str = "why.", **more: Any) -> dict[str, Any]:
    return {"type": f"urn:delayq:problem:{kind}", "status": status, "title": "", "detail": detail} | more


class Told:
    """A server that gives these answers, one after the other; it closes the connection after an empty one."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.requests: list[bytes] = []
        self.connections = 0
        self._listening = socket.create_server((LOCALHOST, 0))
        self.url = f"http://{LOCALHOST}:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile("rb") as stream:
                while self._one(connection, stream):
                    pass

    def _one(self, connection: socket.socket, stream: Any) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := stream.readline()):
                return False
            head += line
        length = next((int(line[15:]) for line in head.splitlines() if line.startswith(b"content-length:")), 0)
        self.requests.append(head + stream.read(length))
        said = self.answers.pop(0)
        connection.sendall(said)
        return bool(said) and b"connection: close" not in said

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def told() -> Iterator[Told]:
    server = Told()
    yield server
    server.close()


@pytest.fixture(params=["threads", "asyncio"])
def caller(request: pytest.FixtureRequest, told: Told) -> Iterator[Any]:
    if request.param == "threads":
        with http.Client(told.url, api_key="dq_a_b") as client:
            yield client
    else:
        awaited = Awaited(http.AsyncClient(told.url, api_key="dq_a_b"))
        yield awaited
        awaited.end()
