"""The servers that tests run on."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from testbed.process import stand_still

REDIS_SERVER = shutil.which("redis-server")
NO_REDIS = "no redis-server on PATH: install it (apt install redis-server)"
#: What is written survives the process. With 'everysec' a kill in the middle of an fsync would lose what was answered
#: meanwhile, because the server does not even write until the disk is done: that is row A2 of docs/faults.md.
KEPT = ("--appendfsync", "no")


class ServerUnderTest:
    """A server that answers: its kind ('fakeredis', 'valkey' or 'redis7'), its URL, and a plain client.

    The client is not typed: redis-py's types allow for its asyncio twin and for text in every answer.
    """

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._pid = 0
        self.admin: Any = redis.Redis.from_url(url, protocol=2, socket_timeout=10)

    @property
    def flags(self) -> bool:
        """Whether it reads the flags of scripts: fakeredis does not know '#!lua'."""
        return self.kind != "fakeredis"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.admin.connection_pool.connection_kwargs["port"])

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing."""
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

    def needs_a_real_one(self, what: str) -> None:
        """Skip the test on fakeredis, saying what that cannot do."""
        if self.kind == "fakeredis":
            pytest.skip(f"fakeredis has no {what}: the same case runs on the embedded Valkey")

    def close(self) -> None:
        """Close the plain client."""
        self.admin.close()


def _with_sha1hex(runtime_of: Any) -> Any:
    """fakeredis does not have `redis.sha1hex`."""

    def runtime(self: Any, server: Any) -> Any:
        lua = runtime_of(self, server)
        lua.globals()[b"redis"][b"sha1hex"] = lambda text: hashlib.sha1(text).hexdigest().encode()
        return lua

    return runtime


_scripting: Any = ScriptingCommandsMixin
_scripting._get_server_runtime = _with_sha1hex(_scripting._get_server_runtime)


@contextmanager
def fake_server() -> Iterator[ServerUnderTest]:
    """fakeredis behind a TCP port."""
    tcp: Any = fakeredis.TcpFakeServer((LOCALHOST, 0), server_version=(7, 0))
    tcp.daemon_threads = True
    thread = threading.Thread(target=tcp.serve_forever, name="fakeredis", daemon=True)
    thread.start()
    server = ServerUnderTest("fakeredis", f"redis://{LOCALHOST}:{tcp.server_address[1]}/0")
    try:
        yield server
    finally:
        server.close()
        tcp.shutdown()
        tcp.server_close()
        thread.join(5)


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
