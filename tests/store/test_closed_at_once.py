"""A connection that fails in the midst is closed at once, whatever the server does: no socket is left to its mercy."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator

import pytest

from delayq.embedded.processes import LOCALHOST
from delayq.errors import StoreError
from delayq.store.commands import plain
from delayq.store.connect.async_store import AsyncStore
from tests.support.certificates import Authority

#: More than the sockets between here and a server that does not read can take.
MUCH = b"x" * (64 * 1024 * 1024)


class Hanging:
    """A server that answers the first words of each client with `reply`, and then neither reads nor closes."""

    def __init__(self, context: ssl.SSLContext | None, reply: bytes) -> None:
        self._context = context
        self._reply = reply
        self._held: list[socket.socket] = []
        self._listener = socket.create_server((LOCALHOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            taken, _ = self._listener.accept()
            if not taken.recv(1, socket.MSG_PEEK):  # it is `close` that came
                taken.close()
                return
            if self._context is not None:
                taken = self._context.wrap_socket(taken, server_side=True)
            self._held.append(taken)
            taken.recv(4096)
            taken.sendall(self._reply)

    def close(self) -> None:
        socket.create_connection((LOCALHOST, self.port)).close()
        self._thread.join()
        for one in (*self._held, self._listener):
            one.close()


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> tuple[ssl.SSLContext | None, str]:
    """What a server wraps its sockets in, and the form of its URL."""
    if request.param == "plain":
        return None, "redis://someone:wrong@{}:{}/0"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("hanging").both)
    return context, f"rediss://someone:wrong@{{}}:{{}}/0?ssl_ca_certs={authority.file}"


@pytest.fixture(params=["refused", "stuck"])
def hanging(request: pytest.FixtureRequest, tls: tuple[ssl.SSLContext | None, str]) -> Iterator[str]:
    """The URL of a server that refuses the password and hangs, or takes it and hangs."""
    context, url = tls
    # The password, and the two answers to how the client introduces itself.
    reply = {"refused": b"-WRONGPASS wrong\r\n", "stuck": b"+OK\r\n" * 3}[request.param]
    server = Hanging(context, reply)
    yield url.format(LOCALHOST, server.port)
    server.close()


async def _try(url: str) -> None:
    store = AsyncStore(url, timeout=0.5)
    with pytest.raises(StoreError):
        await store.run(plain("ECHO", MUCH, read=bytes))
    await store.close()


def test_no_socket_stays_open_when_the_server_hangs(hanging: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(_try(hanging))
        gc.collect()
    assert [str(one.message) for one in told] == []
