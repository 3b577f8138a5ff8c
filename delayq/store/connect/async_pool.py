"""The connections to one server that nobody uses just now, and what is known of it."""

from __future__ import annotations

from contextlib import suppress

from delayq.store.connect.async_sentinel import AsyncPrimary
from delayq.store.connect.event_loop import Connection, Server
from delayq.store.connect.peer import Peer

__all__ = ["AsyncPool"]


class AsyncPool:
    """Connections to one server; each is taken, used and given back."""

    def __init__(self, server: Server | AsyncPrimary, peer: Peer) -> None:
        self.peer = peer
        self._server = server
        self._idle: list[Connection] = []

    async def take(self, until: float) -> Connection:
        """An idle connection, or a new one, for use `until` then; raises what redis-py does."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = None
        connection = connection or await self.connect()  # not within, where an error would no longer know its own cause
        connection.until = until
        return connection

    async def connect(self) -> Connection:
        """A new connection; raises what redis-py does."""
        return await self._server.connect()

    def give(self, connection: Connection) -> None:
        """Nothing is on its way on it."""
        self._idle.append(connection)

    async def drop_idle(self) -> None:
        """Close the idle ones."""
        with suppress(IndexError):  # others take and drop them too
            while True:
                await self._idle.pop().close()

    def forget_idle(self) -> None:
        """Leave the idle ones alone: they belong to the process that this one was forked from."""
        self._idle = []
