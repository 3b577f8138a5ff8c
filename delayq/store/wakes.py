"""Hears what the scripts publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from delayq.errors import StoreUnavailable
from delayq.store.exchange import translate

__all__ = ["Wakes"]


class Wakes:
    """A subscription to channels; a lost message costs lateness, never a message, so nothing here is repeated."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._connection: Any = None

    def connect(self, channels: Sequence[str]) -> None:
        """Subscribe anew; raises StoreUnavailable."""
        self.close()
        try:
            self._connection = self._make()
            self._connection.connect()
            self._connection.send_packed_command(self._connection.pack_command("SUBSCRIBE", *channels))
        except (redis.exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """The next (channel, message), or None after `timeout` seconds; raises StoreUnavailable if it broke."""
        if self._connection is None:
            raise StoreUnavailable("not subscribed; connect first")
        try:
            if not self._connection.can_read(timeout):
                return None
            kind, channel, message = self._connection.read_response()[:3]
        except (redis.exceptions.RedisError, OSError) as error:
            self.close()
            raise translate(error) from error
        return (channel.decode(), message) if kind == b"message" else ("", b"")

    def close(self) -> None:
        """Unsubscribe."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
