"""The servers that tests run on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded import EmbeddedServer
from testbed.process import stand_still
from tests.support.timeouts import PATIENCE

REDIS_SERVER = shutil.which("redis-server")
NO_REDIS = "no redis-server on PATH: install it (apt install redis-server)"
#: What is written survives the process. With 'everysec' a kill in the middle of an fsync would lose what was answered
#: meanwhile, because the server does not even write until the disk is done: that is row A2 of docs/faults.md.
KEPT = ("--appendfsync", "no")


class ServerUnderTest:
    """A running server: its kind ('valkey' or 'redis7'), its URL, and a plain client.

    The client is not typed: redis-py's types allow for its asyncio twin and for text in every answer.
    """

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._pid = 0
        self.admin: Any = redis.Redis.from_url(url, protocol=2, socket_timeout=PATIENCE)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.admin.connection_pool.connection_kwargs["port"])

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._pid = int(self.admin.info("server")["process_id"])
        stand_still(self._pid)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self._pid, signal.SIGCONT)

    def flush(self) -> None:
        """Forget all data."""
        self.admin.flushall()

    def publish(self, channel: str, message: str) -> None:
        """Publish by the plain client."""
        self.admin.publish(channel, message)

    def close(self) -> None:
        """Close the plain client."""
        self.admin.close()


@contextmanager
def real_server(kind: str, **options: Any) -> Iterator[ServerUnderTest]:
    """An embedded Valkey ('valkey'), or the Redis of the system ('redis7')."""
    if kind == "redis7":
        if REDIS_SERVER is None:
            pytest.skip(NO_REDIS)
        options["binary"] = Path(REDIS_SERVER)
    with EmbeddedServer(**options) as running:
        server = ServerUnderTest(kind, running.url)
        try:
            yield server
        finally:
            server.close()
