"""A ZooKeeper for tests: a server, a client beside the coordinators, and a proxy that breaks connections."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kazoo.client import KazooClient

from delayq.embedded.processes import LOCALHOST
from testbed.zookeeper import ZooKeeperServer
from tests.support.proxy import Link, Proxy
from tests.support.running import running
from tests.support.timeouts import PATIENCE

CREATE = 15  # with the stat in its reply


def real_zookeeper(**options: Any) -> AbstractContextManager[ZooKeeperServer]:
    """A running server; skips where there is no Java or no ZooKeeper, with the way to get them."""
    return running(ZooKeeperServer(**options))


@contextmanager
def client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A plain client."""
    one = KazooClient(hosts=hosts, **options)
    one.start(timeout=PATIENCE)
    try:
        yield one
    finally:
        one.stop()
        one.close()


def end_session(hosts: str, client_id: Any) -> None:
    """End a session behind its owner's back, as its expiry does: a second client joins it and closes it."""
    with client(hosts, client_id=client_id):
        pass


class ZooKeeperProxy(Proxy):
    """Passes everything on to a ZooKeeper until a test changes that; with `held`, bytes of the server wait: events come
    late.
    """

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        super().__init__((host, int(port)))
        self._drop: tuple[int, bytes] | None = None
        self.dropped = 0
        self.client_id: tuple[int, bytes] | None = None  # the session of the latest that connected, for `end_session`

    def link(self, client: socket.socket) -> Link:
        return _Link(self, client)

    @property
    def hosts(self) -> str:
        """The server, through here."""
        return f"{LOCALHOST}:{self.port}"

    def drop_reply(self, opcode: int, path: str) -> None:
        """Let the next such request run, drop its reply, and reset the connection."""
        self._drop = (opcode, path.encode())

    def refuse(self) -> None:
        self.release()
        super().refuse()

    def heal(self) -> None:
        self.release()
        super().heal()

    def to_be_dropped(self, opcode: int, payload: bytes) -> bool:
        """Whether the reply of this request is to be dropped."""
        if self._drop is None or self._drop[0] != opcode or self._drop[1] not in payload:
            return False
        self._drop = None
        self.dropped += 1
        return True


class _Link(Link):
    def __init__(self, proxy: ZooKeeperProxy, client: socket.socket) -> None:
        super().__init__(proxy, client)
        self._proxy: ZooKeeperProxy = proxy
        self._drop: int | None = None  # the number of the request whose reply is dropped

    def _requests(self, server: socket.socket) -> None:
        server.sendall(_frame(self._client))  # the first one connects
        while True:
            frame = _frame(self._client)
            number, opcode = struct.unpack_from(">ii", frame, 4)
            if self._proxy.to_be_dropped(opcode, frame):
                self._drop = number
            server.sendall(frame)

    def _replies(self, server: socket.socket) -> None:
        welcome = _frame(server)  # length, version, time-out, session, length and bytes of its password
        session, size = struct.unpack_from(">qi", welcome, 12)
        if session:
            self._proxy.client_id = (session, welcome[24 : 24 + size])
        self._proxy.wait_while_held()
        self._client.sendall(welcome)
        while True:
            frame = _frame(server)
            self._proxy.wait_while_held()
            if struct.unpack_from(">i", frame, 4)[0] == self._drop:
                return  # both ends are reset
            self._client.sendall(frame)


def _frame(end: socket.socket) -> bytes:
    head = _exactly(end, 4)
    return head + _exactly(end, struct.unpack(">i", head)[0])


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
