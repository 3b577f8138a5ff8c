"""Waits for new entries of streams, on a connection of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delayq.store.commands import plain
from delayq.store.connect.address import CLUSTER, parse
from delayq.store.connect.async_store import AsyncStore
from delayq.store.connect.event_loop import CLOCK, Connection, pause
from delayq.store.connect.exchange import broken, translate
from delayq.store.connect.server_state import Fault, packed

#: The longest wait of one command, ms. With a short time-out of the store it is half of that, so that the reply is in time.
LONGEST: Final = 500
#: ms between two looks where one command cannot wait for all streams: they lie on several servers of a Redis Cluster.
LOOK: Final = 100


class AsyncArrivals:
    """Waits until a stream has a new entry. One caller uses it at a time, and closes it at the end."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._longest = max(1, min(LONGEST, int(store.timeout * 500)))
        self._in_cluster = parse(store.url).kind == CLUSTER
        self._connection: Connection | None = None
        self._process = 0

    async def wait(self, streams: Sequence[str], since: int, longest: int) -> None:
        """Return once a stream has an entry that is not older than `since` (Unix ms, by the clock of Redis).

        It returns after `longest` ms at the latest. Raises StoreUnavailable.
        """
        end, after = CLOCK.monotonic() + max(longest, 1), dict.fromkeys(streams, newest(since))
        while (left := end - CLOCK.monotonic()) > 0:
            if await self.newer(lambda: after, min(left, self._longest)):
                return

    async def newer(self, wanted: Callable[[], Mapping[str, str]], longest: int) -> dict[str, str]:
        """Return the streams that have an entry after the entry id that is wanted, each with the id of such an entry.

        `wanted` is called when the streams are read. The answer is empty if none arrives within `longest` ms, or half of the
        store's time-out. Raises StoreUnavailable.
        """
        if self._in_cluster:
            await pause(min(longest, LOOK) / 1000)
        streams = wanted()
        if self._in_cluster:
            return await self._look(streams)
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
            reply = await self._reply(words)
        except Fault as fault:
            raise translate(fault.error) from fault
        return {stream.decode(): entries[0][0].decode() for stream, entries in reply or ()}

    async def _reply(self, words: Sequence[str]) -> Any:
        """Send a command and return its reply. Raises Fault."""
        while True:
            kept = self._connection
            if kept is None or kept.outdated or self._process != os.getpid():
                await self.close()
                kept, self._process = None, os.getpid()
                self._connection = await self._store.connect()
            connection = self._connection
            assert connection is not None
            try:
                await connection.send(packed(*words))
                reply = await connection.receive()
                if isinstance(reply, Exception):
                    raise Fault(reply)
                return reply
            except BaseException as error:
                await self.close()  # its reply is still to come, or nothing more
                if kept is None or not isinstance(error, Fault) or not broken(error.error):
                    raise  # else the server has closed the connection since the last wait

    async def _look(self, streams: Mapping[str, str]) -> dict[str, str]:
        looks = [
            plain("XREVRANGE", stream, "+", f"({after}", "COUNT", 1, read=lambda reply: reply)
            for stream, after in streams.items()
        ]
        answers = await self._store.run_all(looks)
        return {stream: reply[0][0].decode() for stream, reply in zip(streams, answers, strict=True) if reply}

    async def close(self) -> None:
        """Close the connection; again is harmless."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()


def newest(before: int) -> str:
    """Return the last entry id before a time (Unix ms): every entry after it was added at that time or later."""
    return f"{before - 1}-{2**64 - 1}"
