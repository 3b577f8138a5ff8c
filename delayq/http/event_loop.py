"""A connection and a pause for the HTTP client on asyncio; see `threads`."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Self

from delayq.base.clock import SystemClock
from delayq.store.connect.event_loop import pause

__all__ = ["CLOCK", "Stream", "pause"]

CLOCK: Final = SystemClock()
#: The most bytes that are received at once.
MOST: Final = 64 * 1024


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
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
        return cls(reader, writer, until)

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or another event loop has opened it."""
        return self._reader.at_eof() or self._writer.is_closing() or self._loop is not asyncio.get_running_loop()

    async def send(self, content: bytes) -> None:
        """Send all bytes."""
        async with asyncio.timeout(_left(self.until)):
            self._writer.write(content)
            await self._writer.drain()

    async def receive(self) -> bytes:
        """Receive some bytes; none if the server has closed the connection."""
        async with asyncio.timeout(_left(self.until)):
            return await self._reader.read(MOST)

    def close(self) -> None:
        """Close at once."""
        if not self._loop.is_closed():
            self._writer.transport.abort()


def _left(until: float) -> float:
    return max(0.0, until - CLOCK.precise()) / 1000
