"""A running delayq for the pages: an embedded Valkey, a worker and the API, as ./dev up starts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.store.keys import NODES
from tests.docs.story import Service
from tests.support import service as processes
from tests.support.waiting import eventually


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One delayq for all pages."""
    folder = tmp_path_factory.mktemp("delayq")
    with EmbeddedServer(data_dir=folder / "valkey") as server, processes.Service(folder, server.url) as started:
        yield Service(started.url, server.url)


@pytest.fixture
def service(running: Service) -> Service:
    """The running delayq, without messages. Its queues stay those that it knows, else it is not ready any more, and so
    does what its worker last said of itself."""
    client: Any
    with redis.Redis.from_url(running.redis_url, protocol=2) as client:
        born = {key: client.hget(key, "born") for key in client.keys("delayq:{*}:state")}
        lines = eventually(lambda: client.hgetall(NODES), "the worker has said that it is there")
        client.flushall()
        client.hset(NODES, mapping=lines)
        for key, moment in born.items():
            if moment is not None:
                client.hset(key, "born", moment)
    return running
