"""A worker node in a thread of the test's own process."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import Any, Self

from delayq.config import Settings, load_settings
from delayq.domain.nodes import NodeLine, read_nodes
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget, register_memory_target
from tests.support.timeouts import DRAIN_TIMEOUT, REDIS_TIMEOUT, SEND_TIMEOUT
from tests.support.waiting import eventually
from workers.node.node import Node
from workers.queue.in_flight import InFlight

#: Topics that begin with 'm.' go into memory by the general path; all others into streams by the pull script itself.
QUEUES = 2


def lines_with(*tables: list[dict[str, Any]], age: int = 0) -> list[NodeLine]:
    """The lines of workers that have these route tables, as they were read `age` ms after they were written."""
    written = {f"worker-{n}": json.dumps({"seen": 0, "routes": table}).encode() for n, table in enumerate(tables)}
    return list(read_nodes(written, age).values())


def publish_routes(url: str, *tables: list[dict[str, Any]] | None, age: int = 0) -> None:
    """Write the lines of workers that have these route tables, or of older workers that publish none, `age` ms ago."""
    with closing(Store(url)) as store:
        seen = store.run(commands.redis_now()) - age
        for n, table in enumerate(tables):
            line: dict[str, Any] = {"seen": seen} | ({} if table is None else {"routes": table, "policies": ""})
            store.run(commands.publish_node(KEYS, f"worker-{n}", json.dumps(line).encode()))


def settings_for(url: str, target: MemoryTarget, **given: Any) -> Settings:
    """Settings for a small node with both paths; short times, so that nothing waits for long."""
    routes = [
        {"name": "memory", "match": "m.*", "target": register_memory_target(target)},
        {"name": "streams", "match": "*", "target": "redis+stream:"},
    ]
    values: dict[str, Any] = {
        "redis_url": url,
        "queues": QUEUES,
        "routes": json.dumps(routes),
        "redis_timeout": REDIS_TIMEOUT,
        "retry_base": 50,
        "retry_cap": 200,
        "drain_timeout": DRAIN_TIMEOUT,
        "send_timeout": SEND_TIMEOUT,
        "node": "node-under-test",
    }
    return load_settings(**(values | given))


class RunningNode:
    """Runs from `start` to `stop`, or as long as a `with` takes; the end raises what it raised."""

    def __init__(self, settings: Settings, *, wait: bool = True) -> None:
        self.settings = settings
        self.node = Node(settings)
        self.error: BaseException | None = None
        self._wait = wait
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    def _run(self) -> None:
        try:
            self.node.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Run it until it owns its queues, unless the test sets another condition."""
        self._thread.start()
        if self._wait:
            self.wait_until_ready()

    def stop(self) -> None:
        """Stop in order, and see that it did."""
        self.__exit__(None, None, None)

    def wait_until_ready(self) -> None:
        """Until it owns its queues."""
        eventually(lambda: self.node.ready or self.error, "the node is ready")
        if self.error is not None:
            raise self.error

    def wait_for_the_end(self) -> BaseException | None:
        """Until it has ended by itself; what it raised."""
        self._thread.join()
        return self.error

    def __exit__(self, *error: object) -> None:
        self.node.stop()
        self._thread.join(2 * DRAIN_TIMEOUT / 1_000)
        left = [job for job in self.node.jobs.values() if job.alive]
        for job in left:  # as the end of a process would end them: they would own the next test's queues
            job.in_flight = InFlight(job._context, job.parked, job.topics, job.report)  # no further reports
            job.join(5_000)
        assert not self._thread.is_alive(), "the node does not stop"
        assert not left or error[0] is not None, "the node left pull jobs behind"
        if self.error is not None and error[0] is None:
            raise self.error
