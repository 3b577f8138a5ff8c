# Made from async_pool.py by ./dev check --fix; change that one.
"""The connections to one server that nobody uses just now, and what is known of it."""

from __future__ import annotations

from contextlib import suppress

from delayq.store.connect.peer import Peer
from delayq.store.connect.sentinel import Primary
from delayq.store.connect.threads import Connection, Server

__all__ = ["Pool"]


class Pool:
    """Connections to one server; each is taken, used and given back."""

    def __init__(self, server: Server | Primary, peer: Peer) -> None:
        self.peer = peer
        self._server = server
        self._idle: list[Connection] = []

    def take(self, until: float) -> Connection:
        """An idle connection, or a new one, for use `until` then; raises what redis-py does."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = None
        connection = connection or self.connect()  # not within, where an error would no longer know its own cause
        connection.until = until
        return connection

    def connect(self) -> Connection:
        """A new connection; raises what redis-py does."""
        return self._server.connect()

    def give(self, connection: Connection) -> None:
        """Nothing is on its way on it."""
        self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close the idle ones."""
        with suppress(IndexError):  # others take and drop them too
            while True:
                self._idle.pop().close()

    def forget_idle(self) -> None:
        """Leave the idle ones alone: they belong to the process that this one was forked from."""
        self._idle = []
