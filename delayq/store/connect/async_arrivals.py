"""Waits for new entries of streams, on a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from delayq.store.connect.address import CLUSTER, parse
from delayq.store.connect.async_store import AsyncStore
from delayq.store.connect.event_loop import CLOCK, Connection, pause
from delayq.store.connect.exchange import translate
from delayq.store.connect.server_state import Fault, packed

__all__ = ["AsyncArrivals", "newest"]

#: The longest wait of one command, ms. With a short time-out of the store it is half of that, so that the reply is in time.
LONGEST: Final = 500
#: ms between two looks where one command cannot wait for all streams: they lie on several servers.
LOOK: Final = 200


class AsyncArrivals:
    """Waits until a stream has a new entry. One caller uses it at a time, and closes it at the end."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._longest = max(1, min(LONGEST, int(store.timeout * 500)))
        self._connection: Connection | None = None

    async def wait(self, streams: Sequence[str], since: int, longest: int) -> None:
        """Return once a stream has an entry that is not older than `since` (Unix ms, by the clock of Redis).

        It returns after `longest` ms at the latest, and may return earlier. Raises StoreUnavailable.
        """
        if parse(self._store.url).kind == CLUSTER:
            await pause(min(longest, LOOK) / 1000)
            return
        end = CLOCK.monotonic() + max(longest, 1)
        while (left := end - CLOCK.monotonic()) > 0:
            if await self.newer(dict.fromkeys(streams, newest(since)), min(left, self._longest)):
                return

    async def newer(self, streams: Mapping[str, str], longest: int) -> dict[str, str]:
        """Return the streams that have an entry after the given entry id, each with the id of that entry.

        The answer is empty if none arrives within `longest` ms, or half of the store's time-out. Raises StoreUnavailable.
        """
        words = (
            "XREAD",
            "COUNT",
            "1",
            "BLOCK",
            str(min(longest, self._longest)),
            "STREAMS",
            *streams,
            *streams.values(),
        )
        try:
            if self._connection is None or self._connection.outdated:
                await self.close()
                self._connection = await self._store.connect()
            await self._connection.send(packed(*words))
            reply = await self._connection.receive()
            if isinstance(reply, Exception):
                raise Fault(reply)
        except Fault as fault:
            await self.close()
            raise translate(fault.error) from fault
        except BaseException:
            await self.close()  # its reply is still to come
            raise
        return {stream.decode(): entries[0][0].decode() for stream, entries in reply or ()}

    async def close(self) -> None:
        """Close the connection; again is harmless."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()


def newest(before: int) -> str:
    """Return the last entry id before a time (Unix ms): every entry after it was added at that time or later."""
    return f"{before - 1}-{2**64 - 1}"
