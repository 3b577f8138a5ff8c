from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from delayq import Client
from delayq.config import load_settings
from delayq.store.connect.store import Store
from tests.support.queues import GuardedRunner, Queue, WakesHeard
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT

#: 'guarded' runs each script as a user of Redis who may touch only the keys that the script was given.
STORES = (("valkey", "guarded"), pytest.param(("redis7", "sync"), marks=pytest.mark.long))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client whose settings do not say otherwise waits as long as a busy machine may take."""
    monkeypatch.setenv("DELAYQ_REDIS_TIMEOUT", str(REDIS_TIMEOUT))


@pytest.fixture(params=STORES, ids="-".join)
def q(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue on each kind of server."""
    kind, store = request.param
    server = request.getfixturevalue(f"session_{kind}")
    server.flush()
    made = GuardedRunner(server) if store == "guarded" else Store(server.url, timeout=PATIENCE)
    yield Queue(made, server)
    made.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, valkey: ServerUnderTest) -> Iterator[Client]:
    """A client of as many queues as the module says in QUEUES."""
    with Client(settings=load_settings(redis_url=valkey.url, queues=getattr(request.module, "QUEUES", 16))) as made:
        made.context()
        yield made


@pytest.fixture
def wakes(q: Queue) -> Iterator[Callable[[], list[int]]]:
    """Returns the due times of the wakes that were published since the last call."""
    heard = WakesHeard(q)
    yield heard.dues
    heard.close()
