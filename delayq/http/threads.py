"""A connection and a pause for the HTTP client on threads; see `event_loop`."""

from __future__ import annotations

import os
import select
import socket
import ssl
from typing import Final, Self

from delayq.base.clock import SystemClock
from delayq.base.clock import pause as wait

CLOCK: Final = SystemClock()
#: The most bytes that are received at once.
MOST: Final = 64 * 1024


class Stream:
    """A connection of bytes. Each operation ends by `until`, in ms of the precise monotonic clock, with an OSError."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._is_closed = False
        self._process = os.getpid()
        self.until = until

    @classmethod
    def open(cls, host: str, port: int, context: ssl.SSLContext | None, until: float) -> Self:
        """Connect, as on an event loop."""
        made = socket.create_connection((host, port), _left(until))
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(_left(until))
            return cls(made if context is None else context.wrap_socket(made, server_hostname=host), until)
        except BaseException:
            made.close()
            raise

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or another process before a fork has opened it."""
        return self._is_closed or self._process != os.getpid() or bool(select.select([self._connection], [], [], 0)[0])

    def send(self, content: bytes) -> None:
        """Send, as on an event loop."""
        self._connection.settimeout(_left(self.until))
        self._connection.sendall(content)

    def receive(self) -> bytes:
        """Receive, as on an event loop."""
        self._connection.settimeout(_left(self.until))
        received = self._connection.recv(MOST)
        self._is_closed = not received
        return received

    def close(self) -> None:
        """Close at once."""
        self._is_closed = True
        self._connection.close()


def pause(seconds: float) -> None:
    """Wait for so many seconds."""
    wait(CLOCK, seconds * 1000)


def _left(until: float) -> float:
    # A time-out of 0 would make the socket non-blocking.
    return max(1.0, until - CLOCK.precise()) / 1000
