"""Nodes in threads, with routes into memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from delayq.client.client import Client
from delayq.config import Settings, load_settings
from delayq.testing import MemoryTarget, register_memory_target
from tests.support.waiting import eventually
from workers.node.node import Node


def settings_for(url: str, targets: Mapping[str, MemoryTarget], **options: Any) -> Settings:
    """Topics s.* go to local streams, `name.*` into the target of that name."""
    routes = [{"name": "streams", "match": "s.*"}]
    for name, target in targets.items():
        routes.append({"name": name, "match": f"{name}.*", "target": register_memory_target(target, name)})
    defaults: dict[str, Any] = {"queues": 4, "node": "node-under-test", "retry_base": 100, "retry_cap": 1_000}
    return load_settings(redis_url=url, routes=json.dumps(routes), **(defaults | options))


class RunningNode:
    """A node in a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.node = Node(settings)
        self.failed: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, name="node")

    def _run(self) -> None:
        try:
            self.node.run()
        except BaseException as error:
            self.failed.append(error)

    def start(self) -> None:
        self.thread.start()
        eventually(lambda: self.node.ready or self.failed, "the node is ready")
        assert self.failed == []

    def stop(self, timeout: float = 30) -> None:
        """Stop in order, and see that it did."""
        self.node.stop()
        self.thread.join(timeout)
        assert not self.thread.is_alive()
        assert self.failed == []


@contextmanager
def running(settings: Settings) -> Iterator[RunningNode]:
    """A node while the block runs."""
    one = RunningNode(settings)
    one.start()
    try:
        yield one
    finally:
        one.stop()


@contextmanager
def client_of(settings: Settings) -> Iterator[Client]:
    """A client with the same settings."""
    with Client(settings=settings) as client:
        yield client
