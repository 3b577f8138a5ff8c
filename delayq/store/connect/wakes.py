"""Hears what the scripts publish."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from delayq.errors import StoreUnavailable
from delayq.store.connect.exchange import FAULTS, translate
from delayq.store.connect.peer import packed
from delayq.store.connect.threads import Connection

__all__ = ["Wakes"]

#: After so many seconds of silence the server is asked whether it is there; after twice as many it is given up.
SILENCE: Final = 5.0


class Wakes:
    """A subscription to channels; a lost message costs lateness, never a message, so nothing here is repeated.

    `make` is a store's `connect`: it leads to the primary of that moment, or to the next server of a cluster, where any
    of them hears all.
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._connection: Connection | None = None
        self._silent = 0.0
        self._asked = False

    def connect(self, channels: Sequence[str]) -> None:
        """Subscribe anew; raises StoreUnavailable."""
        self.close()
        try:
            self._connection = self._make()
            self._connection.send(packed("SUBSCRIBE", *channels))
        except FAULTS as error:
            self.close()
            raise translate(error) from error

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """The next (channel, message), or None after `timeout` seconds; raises StoreUnavailable if it broke."""
        if self._connection is None:
            raise StoreUnavailable("not subscribed; connect first")
        try:
            if not self._connection.readable(timeout):
                self._bear_silence(self._connection, timeout)
                return None
            kind, *rest = self._read(self._connection)
        except FAULTS as error:
            self.close()
            raise translate(error) from error
        self._silent, self._asked = 0.0, False
        return (rest[0].decode(), rest[1]) if kind == b"message" else ("", b"")

    def _read(self, connection: Connection) -> Any:
        reply = connection.receive()
        if not isinstance(reply, Exception):
            return reply
        if self._asked and isinstance(reply, redis.exceptions.NoPermissionError):  # it may not be asked, and is there
            return (b"pong",)
        raise reply

    def _bear_silence(self, connection: Connection, timeout: float) -> None:
        """Tell a server that has nothing to say from one that is gone without a word."""
        self._silent += timeout
        if self._silent >= 2 * SILENCE:
            raise redis.exceptions.ConnectionError("the subscription is silent")
        if self._silent >= SILENCE and not self._asked:
            self._asked = True
            connection.send(packed("PING"))

    def close(self) -> None:
        """Unsubscribe."""
        self._silent, self._asked = 0.0, False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
