"""The tools of the stores for threads: connections, a bound on how many use something at once, a pause; and a subscription.

`event_loop` has the same for asyncio, but for the subscription. redis-py makes each connection (TLS, login, name, TCP or a
Unix socket). Commands and replies then use its bare socket: redis-py's own code there costs more than all the rest.
"""

from __future__ import annotations

import queue
import select
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

import redis

from delayq.base.clock import SystemClock
from delayq.base.errors import StoreUnavailable
from delayq.base.interrupts import raise_if_interrupt
from delayq.base.socket_writes import write_until
from delayq.store.connect.address import transport
from delayq.store.connect.exchange import translate
from delayq.store.connect.server_state import (
    AS_FAULTS,
    CHUNK,
    EXHAUSTED,
    MISSING,
    SLOW,
    ConnectionState,
    Fault,
    Lease,
    NamedServer,
    Packer,
    arrived,
    connection_options,
    packed,
    reader,
    usable,
)

CLOCK: Final = SystemClock()


class _Tcp(redis.Connection):
    """Try one address of the host after the other.

    redis-py does so too, but it goes on to the next address after any OSError, even after one that a signal handler
    raised.
    """

    def _connect(self) -> Any:
        connect: Callable[[], Any] = super()._connect
        name, error = self.host, OSError("the host has no address")
        found = socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM)
        try:
            for *_, address in found:
                self.host = str(address[0]) if len(found) > 1 else name
                try:
                    return connect()
                except OSError as failed:
                    raise_if_interrupt(failed)
                    error = failed
        finally:
            self.host = name
        raise error


class _Tls(redis.SSLConnection, _Tcp):
    """The same with TLS: the certificate must be for the name."""


_CLASSES: Final[Any] = {"unix": redis.UnixDomainSocketConnection, "tls": _Tls, "tcp": _Tcp}
#: Timeouts that a reply may take in all, over a slow line.
TRICKLES: Final = 10


class Server(NamedServer):
    """Makes connections to one server. Refuses an invalid URL with a ValueError or TypeError."""

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__()
        self._factory = redis.ConnectionPool(
            _CLASSES[transport(url)], **connection_options(url, timeout), command_packer=Packer()
        )

    def connect(self) -> Connection:
        """Return a new connection. Raises Fault."""
        moves = self.moves
        with AS_FAULTS:
            made: Any = self._factory.make_connection()  # redis-py opens a file for it
            made.connect()
        return Connection(made, self, moves)


class Connection(ConnectionState):
    """A connection to one server, for one thread at a time.

    Each send and each wait is bounded by the time-out; none begins after `until`, by the precise monotonic clock. Bytes that have
    arrived by then are read.
    """

    __slots__ = ("_buffer", "_made", "_reader", "_socket", "_timeout", "address")

    def __init__(self, made: Any, server: Server, moves: int) -> None:
        super().__init__(server, moves)
        self._made = made
        self._timeout = made.socket_timeout * 1000  # ms
        self._socket = made._sock
        self._reader = reader()
        self._buffer = bytearray(CHUNK)
        self.address = (getattr(made, "host", ""), getattr(made, "port", 0))

    def send(self, packed: bytes) -> None:
        """Send commands; raises Fault."""
        with AS_FAULTS:
            if self.until == inf:
                self._socket.sendall(packed)
                return
            write_until(self._socket, packed, CLOCK, min(self.until, CLOCK.precise() + self._timeout))
            self._socket.settimeout(self._timeout / 1000)

    def receive(self) -> Any:
        """Return the next reply. An error of the server is returned (see `usable`). Raises Fault."""
        end: float | None = None
        with AS_FAULTS:
            while (reply := self._reader.gets()) is MISSING:
                now = CLOCK.precise()
                if end is None:
                    end = min(now + TRICKLES * self._timeout, self.until)
                # The socket's own timeout is longer than the remaining time.
                if (left := end - now) < self._timeout and not self._arrived(max(0, left) / 1000):
                    raise TimeoutError(SLOW)
                self._reader.feed(self._buffer, 0, arrived(self._socket.recv_into(self._buffer)))
        return usable(reply)

    def readable(self, seconds: float) -> bool:
        """Return whether a reply begins to arrive within this many seconds. Raises Fault."""
        with AS_FAULTS:
            return bool(self._reader.has_data()) or self._arrived(seconds)

    def _arrived(self, seconds: float) -> bool:
        if hasattr(self._socket, "pending") and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close it; repeating it is harmless."""
        self._made.disconnect()


class Semaphore:
    """Admits `most` threads at once; the next one is refused after `timeout` seconds.

    A signal handler may raise between any two lines of its callers. A place that was lost this way is found again: its
    lease is gone.
    """

    def __init__(self, most: int, timeout: float) -> None:
        self._timeout = timeout
        self._most = most
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()  # leases of admitted and of waiting threads
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # in C, and so cheaper than those of `threading`
        for _ in range(most):
            self._free.put(None)

    def acquire(self) -> Lease:
        """Wait for a place, and return the argument of `release`. Raises Fault."""
        lease = Lease()
        self._leases.add(lease)
        if self._free.empty():
            self._find_lost()
        try:
            self._free.get(timeout=self._timeout)
        except queue.Empty:
            raise Fault(TimeoutError(EXHAUSTED)) from None
        return lease

    def release(self, lease: Lease) -> None:
        """Admit the next thread."""
        self._free.put(None)
        self._leases.discard(lease)

    def _find_lost(self) -> None:
        """Return the places that nobody has. Never too many: each lease begins before its place is taken, and ends
        after.
        """
        for _ in range(self._most - self._free.qsize() - (len(self._leases) - 1)):
            self._free.put(None)


def pause(seconds: float) -> None:
    """Wait."""
    condition = threading.Condition()
    with condition:
        CLOCK.wait(condition, seconds * 1000)


#: After this many seconds of silence, the server is asked whether it is alive; after twice as many, it is given up.
SILENCE: Final = 5.0


class Wakes:
    """A subscription to channels. A lost message costs lateness, never a message, so nothing here is repeated.

    `make` is a store's `connect`. It leads to the primary of that moment, or to the next server of a cluster, where every
    server gets all messages.
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._connection: Connection | None = None
        self._silent = 0.0
        self._asked = False

    def connect(self, channels: Sequence[str]) -> None:
        """Subscribe again. Raises StoreUnavailable."""
        self.close()
        try:
            self._connection = self._make()
            self._connection.send(packed("SUBSCRIBE", *channels))
        except Fault as fault:
            self.close()
            raise translate(fault.error) from fault

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """Return the next (channel, message), or None after `timeout` seconds. Raises StoreUnavailable if it broke."""
        if self._connection is None:
            raise StoreUnavailable("not subscribed; connect first")
        try:
            if self._connection.outdated:
                gone = "the subscription is at a server that is no longer the primary"
                raise Fault(redis.exceptions.ConnectionError(gone))
            if not self._connection.readable(timeout):
                self._bear_silence(self._connection, timeout)
                return None
            kind, *rest = self._read(self._connection)
        except Fault as fault:
            self.close()
            raise translate(fault.error) from fault
        self._silent, self._asked = 0.0, False
        return (rest[0].decode(), rest[1]) if kind == b"message" else ("", b"")

    def _read(self, connection: Connection) -> Any:
        reply = connection.receive()
        if not isinstance(reply, Exception):
            return reply
        # The user may not run PING, but the server answers.
        if self._asked and isinstance(reply, redis.exceptions.NoPermissionError):
            return (b"pong",)
        raise Fault(reply)

    def _bear_silence(self, connection: Connection, timeout: float) -> None:
        """Distinguish a server that has nothing to send from one that has disappeared silently."""
        self._silent += timeout
        if self._silent >= 2 * SILENCE:
            raise Fault(redis.exceptions.ConnectionError("the subscription is silent"))
        if self._silent >= SILENCE and not self._asked:
            self._asked = True
            connection.send(packed("PING"))

    def close(self) -> None:
        """Unsubscribe."""
        self._silent, self._asked = 0.0, False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
