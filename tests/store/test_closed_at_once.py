"""A connection that fails in the midst is closed at once, whatever the server does."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from contextlib import suppress

import pytest

from delayq.base.errors import StoreError
from delayq.embedded.processes import LOCALHOST
from delayq.store.commands import plain
from delayq.store.connect.async_store import AsyncStore
from tests.support.certificates import Authority

#: More bytes than the sockets between here and a server that does not read can take.
MUCH = b"x" * (64 * 1024 * 1024)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("reply", [b"-WRONGPASS wrong\r\n", b"+OK\r\n" * 3], ids=["refused", "stuck"])
def test_no_socket_stays_open_when_the_server_hangs(authority: Authority, tls: bool, reply: bytes) -> None:
    """B15: An asynchronous client's call fails within its time.

    Nothing waits for the server's goodbye by TLS, nor for it to read the rest.

    The server answers the first words of a client, the password among them, and then neither reads nor closes.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("hanging").both)
    listener = socket.create_server((LOCALHOST, 0))
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):  # the listener is shut down
            while True:
                taken, _ = listener.accept()
                held.append(context.wrap_socket(taken, server_side=True) if tls else taken)
                held[-1].recv(4096)
                held[-1].sendall(reply)

    async def fail() -> None:
        place = f"someone:wrong@{LOCALHOST}:{listener.getsockname()[1]}/0"
        url = f"rediss://{place}?ssl_ca_certs={authority.file}" if tls else f"redis://{place}"
        store = AsyncStore(url, timeout=0.5)  # the call ends by it, as nobody answers
        with pytest.raises(StoreError):
            await store.run(plain("ECHO", MUCH, read=bytes))
        await store.close()

    server = threading.Thread(target=serve)
    server.start()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(fail())
        gc.collect()
    listener.shutdown(socket.SHUT_RDWR)
    server.join()
    for one in (*held, listener):
        one.close()
    assert [str(one.message) for one in told] == []
