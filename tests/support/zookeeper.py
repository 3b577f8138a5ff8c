"""A ZooKeeper for tests: a server, a client beside the coordinators, and a proxy that breaks connections."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Self

from kazoo.client import KazooClient

from delayq.embedded.processes import LOCALHOST, free_port
from testbed.zookeeper import ZooKeeperServer
from tests.support.running import running

CREATE = 15  # with the stat in its reply


def real_zookeeper(**options: Any) -> AbstractContextManager[ZooKeeperServer]:
    """A running server; skips where there is no Java or no ZooKeeper, and says how to get them."""
    return running(ZooKeeperServer(**options))


@contextmanager
def client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A plain client."""
    one = KazooClient(hosts=hosts, **options)
    one.start(timeout=10)
    try:
        yield one
    finally:
        one.stop()
        one.close()


def end_session(hosts: str, client_id: Any) -> None:
    """End a session behind its owner's back, as its expiry does: a second client joins it and closes it."""
    with client(hosts, client_id=client_id):
        pass


class ZooKeeperProxy:
    """Passes everything on until told otherwise. Use it as a context manager."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._server = (host, int(port))
        self._port = free_port()
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._drop: tuple[int, bytes] | None = None
        self._passing = threading.Event()
        self._passing.set()
        self.dropped = 0
        self.client_id: tuple[int, bytes] | None = None  # the session of the latest that connected, for `end_session`

    @property
    def hosts(self) -> str:
        """The server, through here."""
        return f"{LOCALHOST}:{self._port}"

    def drop_reply(self, opcode: int, path: str) -> None:
        """Let the next such request run, drop its reply, and reset the connection."""
        self._drop = (opcode, path.encode())

    def hold(self) -> None:
        """Hold back what the server says, until healed: events come late."""
        self._passing.clear()

    def wait(self) -> None:
        """Until what the server says may pass."""
        self._passing.wait()

    def refuse(self) -> None:
        """Reset what there is and accept nothing."""
        self._passing.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            assert self._accepting is not None
            self._accepting.join(5)
            listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.reset()

    def heal(self) -> None:
        """Pass everything on again."""
        self._passing.set()
        if self._listener is not None:
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOCALHOST, self._port))
        listener.listen(16)
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), name="proxy-accept", daemon=True)
        self._accepting.start()

    def __enter__(self) -> Self:
        self.heal()
        return self

    def __exit__(self, *error: object) -> None:
        self.refuse()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._server, timeout=5)
            except OSError:
                return
            far.settimeout(None)
            link = _Link(self, near, far)
            with self._lock:
                self._links.add(link)
            link.start()

    def to_be_dropped(self, opcode: int, payload: bytes) -> bool:
        """Whether the reply of this request is to be dropped."""
        if self._drop is None or self._drop[0] != opcode or self._drop[1] not in payload:
            return False
        self._drop = None
        self.dropped += 1
        return True

    def gone(self, link: _Link) -> None:
        """A link has ended."""
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection: a thread for each direction."""

    def __init__(self, proxy: ZooKeeperProxy, near: socket.socket, far: socket.socket) -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._drop: int | None = None  # the number of the request whose reply is dropped

    def start(self) -> None:
        """Pass on."""
        for name, pump in (("requests", self._requests), ("replies", self._replies)):
            threading.Thread(target=self._run, args=(pump,), name=f"proxy-{name}", daemon=True).start()

    def reset(self) -> None:
        """RST to both ends."""
        for end in (self._near, self._far):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)
            end.close()
        self._proxy.gone(self)

    def _run(self, pump: Any) -> None:
        with suppress(OSError, EOFError):
            pump()
        self.reset()

    def _requests(self) -> None:
        self._far.sendall(_frame(self._near))  # the first one connects
        while True:
            frame = _frame(self._near)
            number, opcode = struct.unpack_from(">ii", frame, 4)
            if self._proxy.to_be_dropped(opcode, frame):
                self._drop = number
            self._far.sendall(frame)

    def _replies(self) -> None:
        welcome = _frame(self._far)  # length, version, time-out, session, length and bytes of its password
        session, size = struct.unpack_from(">qi", welcome, 12)
        if session:
            self._proxy.client_id = (session, welcome[24 : 24 + size])
        self._proxy.wait()
        self._near.sendall(welcome)
        while True:
            frame = _frame(self._far)
            self._proxy.wait()
            if struct.unpack_from(">i", frame, 4)[0] == self._drop:
                return  # both ends are reset
            self._near.sendall(frame)


def _frame(end: socket.socket) -> bytes:
    head = _exactly(end, 4)
    return head + _exactly(end, struct.unpack(">i", head)[0])


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data
