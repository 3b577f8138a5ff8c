"""A worker's node in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from delayq import Settings
from tests.support.waiting import eventually
from workers.node.node import Node


@contextmanager
def running_node(settings: Settings) -> Iterator[Node]:
    """A node that owns its queues; what it raises, this raises at the end."""
    node = Node(settings)
    raised: list[Exception] = []

    def run() -> None:
        try:
            node.run()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="node")
    thread.start()
    try:
        eventually(lambda: node.ready or raised, "the node owns its queues")
        if not raised:
            yield node
    finally:
        node.stop()
        thread.join()
    if raised:
        raise raised[0]
