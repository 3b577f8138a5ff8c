"""Hears what the scripts publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import redis

from delayq.errors import StoreUnavailable
from delayq.store.connect.exchange import FAULTS, translate

__all__ = ["Wakes"]

#: After so many seconds of silence the server is asked whether it is there; after twice as many it is given up.
SILENCE: Final = 5.0


class Wakes:
    """A subscription to channels; a lost message costs lateness, never a message, so nothing here is repeated.

    Each `connect` asks `make` for a connection: to the primary of that moment, or to the next server of a cluster,
    where any of them hears all.
    """

    def __init__(self, make: Any) -> None:
        self._make = make
        self._connection: Any = None
        self._silent = 0.0
        self._asked = False

    def connect(self, channels: Sequence[str]) -> None:
        """Subscribe anew; raises StoreUnavailable."""
        self.close()
        try:
            self._connection = self._make()
            self._connection.connect()
            self._send("SUBSCRIBE", *channels)
        except FAULTS as error:
            self.close()
            raise translate(error) from error

    def _send(self, *words: str) -> None:
        self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """The next (channel, message), or None after `timeout` seconds; raises StoreUnavailable if it broke."""
        if self._connection is None:
            raise StoreUnavailable("not subscribed; connect first")
        try:
            if not self._connection.can_read(timeout):
                self._bear_silence(timeout)
                return None
            kind, *rest = self._read()
        except FAULTS as error:
            self.close()
            raise translate(error) from error
        self._silent, self._asked = 0.0, False
        return (rest[0].decode(), rest[1]) if kind == b"message" else ("", b"")

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.NoPermissionError:  # it may not be asked, and is there
            if not self._asked:
                raise
            return (b"pong",)

    def _bear_silence(self, timeout: float) -> None:
        """Tell a server that has nothing to say from one that is gone without a word."""
        self._silent += timeout
        if self._silent >= 2 * SILENCE:
            raise redis.exceptions.ConnectionError("the subscription is silent")
        if self._silent >= SILENCE and not self._asked:
            self._asked = True
            self._send("PING")

    def close(self) -> None:
        """Unsubscribe."""
        self._silent, self._asked = 0.0, False
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
