"""An API process, and clients of it and of its Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Client, http
from delayq.embedded import EmbeddedServer
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
