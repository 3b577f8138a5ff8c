from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import KINDS
from tests.support.queues import Queue, WakesHeard, runner

# 'guarded' runs each script as a user of Redis who may touch no key but those that the script was given.
KINDS_AND_CLUSTER = (*KINDS, "cluster")
STORES = [*((kind, store) for kind in KINDS_AND_CLUSTER for store in ("sync", "async")), ("valkey", "guarded")]


@pytest.fixture(params=STORES, ids="-".join)
def q(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """A queue of each kind of server, by each of the stores."""
    kind, store = request.param
    if kind == "cluster" and request.node.get_closest_marker("one_server") is not None:
        pytest.skip("in a cluster a stream of its own name lies in its own slot: tests/store/cluster")
    server = request.getfixturevalue(f"session_{kind}")
    server.flush()
    made = runner(store, server)
    yield Queue(made, server)
    made.close()


@pytest.fixture
def wakes(q: Queue) -> Iterator[Callable[[], list[int]]]:
    """The dues of the wakes that were published since it was asked last."""
    heard = WakesHeard(q)
    yield heard.dues
    heard.close()
