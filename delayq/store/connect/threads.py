"""What the stores need of threads: connections, a bound on how many use something at once, a pause.

`event_loop` has the same for asyncio. redis-py makes each connection (TLS, login, name, TCP or a Unix socket); what is
sent then, and the replies, go over its bare socket: redis-py's own way there costs more than all the rest.
"""

from __future__ import annotations

import queue
import select
import threading
from math import inf
from typing import Any, Final

import redis

from delayq.clock import SystemClock
from delayq.store.connect.peer import CHUNK, EXHAUSTED, MISSING, SLOW, connection_options, pin, reader, usable

__all__ = ["CLOCK", "Connection", "Semaphore", "Server", "pause"]

CLOCK: Final = SystemClock()
#: Time-outs that a reply may trickle for: over a narrow line the reply to a pull of large messages takes long.
TRICKLES: Final = 10


class Server:
    """Makes connections to one server; refuses a wrong URL by a ValueError or TypeError."""

    def __init__(self, url: str, timeout: float) -> None:
        self._factory = redis.ConnectionPool.from_url(url, **connection_options(url, timeout))
        pin(self._factory)
        self._factory.make_connection()  # it connects to nothing yet, but refuses unknown options

    def connect(self) -> Connection:
        """A new connection; raises what redis-py does."""
        made: Any = self._factory.make_connection()
        made.connect()
        return Connection(made)


class Connection:
    """A connection to one server, for one thread at a time.

    Each send and each wait is bounded by the time-out; none begins after `until`, by the precise monotonic clock.
    """

    __slots__ = ("_buffer", "_made", "_reader", "_socket", "_timeout", "address", "until")

    def __init__(self, made: Any) -> None:
        self.until = inf
        self._made = made
        self._timeout = made.socket_timeout * 1000  # ms
        self._socket = made._sock
        self._reader = reader()
        self._buffer = bytearray(CHUNK)
        self.address = (getattr(made, "host", ""), getattr(made, "port", 0))

    def send(self, packed: bytes) -> None:
        """Send commands."""
        if CLOCK.precise() >= self.until:
            raise TimeoutError(SLOW)
        self._socket.sendall(packed)

    def receive(self) -> Any:
        """The next reply; an error of the server's is returned (see `usable`)."""
        end: float | None = None
        while (reply := self._reader.gets()) is MISSING:
            now = CLOCK.precise()
            if end is None:
                end = min(now + TRICKLES * self._timeout, self.until)
            if now >= end:
                raise TimeoutError(SLOW)
            size = self._socket.recv_into(self._buffer)
            if not size:
                raise redis.exceptions.ConnectionError("Redis closed the connection")
            self._reader.feed(self._buffer, 0, size)
        return usable(reply)

    def readable(self, seconds: float) -> bool:
        """Whether a reply comes, or begins to, within so many seconds."""
        if self._reader.has_data() or (hasattr(self._socket, "pending") and self._socket.pending()):
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close it; again is harmless."""
        self._made.disconnect()


class Semaphore:
    """Lets `most` in at once; the next one is refused after `timeout` seconds."""

    def __init__(self, most: int, timeout: float) -> None:
        self._timeout = timeout
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # in C, and so cheaper than those of `threading`
        for _ in range(most):
            self._free.put(None)

    def acquire(self) -> None:
        """Raises TimeoutError."""
        try:
            self._free.get(timeout=self._timeout)
        except queue.Empty:
            raise TimeoutError(EXHAUSTED) from None

    def release(self) -> None:
        """Let the next one in."""
        self._free.put(None)


def pause(seconds: float) -> None:
    """Wait."""
    condition = threading.Condition()
    with condition:
        CLOCK.wait(condition, seconds * 1000)
