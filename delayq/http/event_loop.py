"""What the HTTP client needs of asyncio: a connection and a pause; see `threads`."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sleep as pause
from typing import Final, Self

from delayq.clock import SystemClock

__all__ = ["CLOCK", "Stream", "pause"]

CLOCK: Final = SystemClock()
#: The most bytes of one line of a head.
LINE: Final = 64 * 1024


class Stream:
    """A connection of bytes. Each operation ends by `until`, in ms of the precise monotonic clock, with an OSError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, until: float) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self.until = until

    @classmethod
    async def open(cls, host: str, port: int, context: ssl.SSLContext | None, until: float) -> Self:
        """Connect, with TLS if a context is given. Raises OSError."""
        async with asyncio.timeout(_left(until)):
            reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=LINE)
        return cls(reader, writer, until)

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or another event loop has opened it."""
        return self._reader.at_eof() or self._writer.is_closing() or self._loop is not asyncio.get_running_loop()

    async def write(self, content: bytes) -> None:
        """Write all bytes."""
        async with asyncio.timeout(_left(self.until)):
            self._writer.write(content)
            await self._writer.drain()

    async def read_line(self) -> bytes:
        """Read a line with its end; without an end, the connection was closed."""
        async with asyncio.timeout(_left(self.until)):
            try:
                return await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                return error.partial
            except asyncio.LimitOverrunError:
                raise OSError("the head of the answer is too large") from None

    async def read(self, size: int) -> bytes:
        """Read so many bytes; fewer if the connection is closed. -1 reads until it is closed."""
        async with asyncio.timeout(_left(self.until)):
            try:
                return await (self._reader.read() if size < 0 else self._reader.readexactly(size))
            except asyncio.IncompleteReadError as error:
                return error.partial

    def close(self) -> None:
        """Close at once."""
        if not self._loop.is_closed():
            self._writer.transport.abort()


def _left(until: float) -> float:
    return max(0.0, until - CLOCK.precise()) / 1000
