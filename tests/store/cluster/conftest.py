from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq import Client, Settings
from delayq.store.connect.store import Store
from tests.support.clusters import QUEUES, ClusterUnderTest
from tests.support.queues import AsyncRunner, Runner
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT

MAKERS = {"sync": Store, "async": AsyncRunner}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, cluster: ClusterUnderTest) -> Iterator[Runner]:
    """Each of the two stores."""
    made: Runner = MAKERS[request.param](cluster.url, timeout=PATIENCE)
    yield made
    made.close()


@pytest.fixture
def client(cluster: ClusterUnderTest) -> Iterator[Client]:
    with Client(cluster.url, settings=Settings(queues=QUEUES, redis_timeout=REDIS_TIMEOUT)) as made:
        yield made
