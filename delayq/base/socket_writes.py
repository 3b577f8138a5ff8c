"""Writes to a socket until a deadline, and never after it."""

from __future__ import annotations

import select
import socket
import ssl
from typing import Final

from delayq.base.clock import Clock

#: Bytes of one TLS record: OpenSSL writes a larger buffer as several records, one after the other.
RECORD: Final = 16_384


def write_until(sock: socket.socket, data: bytes, clock: Clock, deadline: float) -> None:
    """Write the complete buffer. Raises TimeoutError at the deadline (ms of the precise monotonic clock).

    The socket does not block meanwhile. The clock is read right before each write, and no write waits. So a process
    that stalled beyond the deadline writes nothing when it continues: others may rely on that.
    """
    sock.settimeout(0)
    most = RECORD if isinstance(sock, ssl.SSLSocket) else len(data)
    view = memoryview(data)
    while view:
        left = deadline - clock.precise()
        if left <= 0:
            raise TimeoutError("time-out")
        try:
            view = view[sock.send(view[:most]) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            _wait(sock, select.POLLOUT, left)
        except ssl.SSLWantReadError:  # TLS must receive data of its own first
            _wait(sock, select.POLLIN, left)


def _wait(sock: socket.socket, event: int, ms: float) -> None:
    poll = select.poll()
    poll.register(sock, event)
    poll.poll(ms)
