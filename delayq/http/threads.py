"""What the HTTP client needs of threads: a connection and a pause; see `event_loop`."""

from __future__ import annotations

import os
import select
import socket
import ssl
from typing import Final, Self

from delayq.clock import SystemClock
from delayq.clock import pause as wait

__all__ = ["CLOCK", "Stream", "pause"]

CLOCK: Final = SystemClock()
#: The most bytes of one line of a head.
LINE: Final = 64 * 1024


class Stream:
    """A connection of bytes. Each operation ends by `until`, in ms of the precise monotonic clock, with an OSError."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._is_closed = False
        self._process = os.getpid()
        self.until = until

    @classmethod
    def open(cls, host: str, port: int, context: ssl.SSLContext | None, until: float) -> Self:
        """Connect, with TLS if a context is given. Raises OSError."""
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

    def write(self, content: bytes) -> None:
        """Write all bytes."""
        self._connection.settimeout(_left(self.until))
        self._connection.sendall(content)

    def read_line(self) -> bytes:
        """Read a line with its end; without an end, the connection was closed."""
        while (end := self._buffer.find(b"\n")) < 0 and self._fill():
            if len(self._buffer) > LINE:
                raise OSError("the head of the answer is too large")
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    def read(self, size: int) -> bytes:
        """Read so many bytes; fewer if the connection is closed. -1 reads until it is closed."""
        while (size < 0 or len(self._buffer) < size) and self._fill():
            pass
        return self._take(len(self._buffer) if size < 0 else size)

    def _fill(self) -> bool:
        self._connection.settimeout(_left(self.until))
        received = self._connection.recv(LINE)
        self._buffer += received
        self._is_closed = not received
        return bool(received)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

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
