"""A Redis Cluster, from one event loop; see `cluster`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Any

import redis
from hiredis import pack_command

from delayq.store.commands import Command
from delayq.store.connect.address import Address, Node
from delayq.store.connect.cluster_exchange import ASKING, NO_PLACE, Lane, Spread, Way, nobody
from delayq.store.connect.durability import BARRIERS, Durability
from delayq.store.connect.exchange import FAULTS, async_factory, drop, receive, send, words_of
from delayq.store.connect.peer import Peer
from delayq.store.connect.slots import WHO, SlotMap

__all__ = ["AsyncCluster"]


class _Pool:
    """The idle connections to one server, and what is known of it."""

    def __init__(self, url: str, timeout: float) -> None:
        self._factory: Any = async_factory(url, timeout)
        self._idle: list[Any] = []
        self.peer = Peer(timeout)

    async def fresh(self) -> Any:
        """A new connection; raises what redis-py does."""
        connection = self._factory.make_connection()
        try:
            await connection.connect()
        except BaseException:
            await drop(connection)
            raise
        return connection

    async def take(self) -> Any:
        """An idle connection, or a new one; raises what redis-py does."""
        return self._idle.pop() if self._idle else await self.fresh()

    def give(self, connection: Any) -> None:
        """Nothing is on its way on it."""
        self._idle.append(connection)

    async def drop_idle(self) -> None:
        """Close the idle ones."""
        while self._idle:
            await drop(self._idle.pop())


class AsyncCluster:
    """`Cluster` for one event loop."""

    def __init__(self, address: Address, *, timeout: float, connections: int, flags: bool) -> None:
        self._address = address
        self._timeout = timeout
        self._flags = flags
        self._slots = SlotMap(address.nodes)
        self._pools: dict[Node, _Pool] = {}
        self._pool(address.nodes[0])  # refuses unknown options
        self._free = asyncio.Semaphore(connections)
        self._asking = asyncio.Lock()

    def _pool(self, node: Node) -> _Pool:
        pool = self._pools.get(node)
        if pool is None:
            pool = self._pools[node] = _Pool(self._address.url_of(node), self._timeout)
        return pool

    async def run_many(self, commands: Iterable[Command[Any]], durability: Durability | None) -> list[Any]:
        """Run commands, sending ahead of the replies to each primary; an error stands in its command's place."""
        spread = Spread(commands, self._slots, durability)
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            return spread.give_up(redis.exceptions.ConnectionError("no connection became free in time"))
        try:
            if not self._slots.primaries and (error := await self._refresh()) is not None:
                return spread.give_up(error)
            clock = asyncio.get_running_loop().time
            end = clock() + self._timeout
            await self._round(spread)
            while spread.waiting and clock() < end and (pause := spread.next_round()) is not None:
                await asyncio.sleep(pause)
                if spread.stale:
                    spread.stale = False
                    await self._refresh(spread.trouble)
                await self._round(spread)
            if spread.stale:
                await self._refresh(spread.trouble)
            return spread.result()
        finally:
            for lane in spread.lanes.values():
                if lane.waiting:
                    await drop(lane.connection)
                else:
                    self._pool(lane.node).give(lane.connection)
            self._free.release()

    async def _round(self, spread: Spread) -> None:
        for node, way in spread.to_send():
            lane = spread.lanes.get(node) or await self._open(spread, node, way)
            if lane is None:
                continue
            try:
                for one in lane.with_time(way):
                    await self._send(lane, one)
                    while lane.full:
                        await self._receive(spread, lane)
            except FAULTS as error:
                await self._lose(spread, lane, error)
        for _ in range(BARRIERS if spread.durability is not None else 1):
            await self._each(spread, self._send_barriers)
            await self._each(spread, self._drain)

    async def _each(self, spread: Spread, step: Callable[[Spread, Lane], Awaitable[None]]) -> None:
        for lane in list(spread.lanes.values()):
            try:
                await step(spread, lane)
            except FAULTS as error:
                await self._lose(spread, lane, error)

    async def _send_barriers(self, _spread: Spread, lane: Lane) -> None:
        for command in lane.barriers():
            await self._send(lane, Way(NO_PLACE, command))

    async def _drain(self, spread: Spread, lane: Lane) -> None:
        while lane.waiting:
            await self._receive(spread, lane)

    async def _open(self, spread: Spread, node: Node, way: Way) -> Lane | None:
        pool = self._pool(node)
        try:
            async with asyncio.timeout(self._timeout):
                connection = await pool.take()
        except FAULTS as error:
            spread.unreachable(node, way, error)
            return None
        lane = spread.lanes[node] = Lane(node, connection, pool.peer, spread.durability)
        return lane

    async def _lose(self, spread: Spread, lane: Lane, error: Exception) -> None:
        await drop(lane.connection)
        await self._pool(lane.node).drop_idle()
        spread.lost(lane, error)

    async def _send(self, lane: Lane, way: Way) -> None:
        words = pack_command(tuple(words_of(way.command, self._flags, lane.peer)))
        if way.asking:
            lane.sent(Way(NO_PLACE, ASKING), 0)
            words = pack_command(("ASKING",)) + words
        lane.sent(way, len(words))
        async with asyncio.timeout(self._timeout):
            await send(lane.connection, words)

    async def _receive(self, spread: Spread, lane: Lane) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                reply = await receive(lane.connection)
        except redis.exceptions.ResponseError as error:
            if (again := spread.refused(lane, error)) is not None:
                await self._send(lane, again)
        else:
            spread.answered(lane, reply)

    async def _refresh(self, trouble: Set[Node] = frozenset()) -> Exception | None:
        """Ask the servers one by one who serves which slot, those in trouble last; the last error if none knows."""
        seen = self._slots.version
        async with self._asking:
            if self._slots.version != seen:  # another task has asked meanwhile
                return None
            tried = sorted(self._slots.to_ask(), key=lambda node: node in trouble)
            last: Exception | None = None
            for node in tried:
                try:
                    async with asyncio.timeout(self._timeout):
                        reply = await self._ask(node)
                except FAULTS as error:
                    last = error
                    continue
                if reply:
                    self._slots.take(reply, node)
                    return None
            return nobody(tried, last)

    async def _ask(self, node: Node) -> Any:
        connection = await self._pool(node).fresh()
        try:
            await send(connection, pack_command(WHO))
            return await receive(connection)
        finally:
            await drop(connection)

    async def close(self) -> None:
        """Close the idle connections."""
        for pool in list(self._pools.values()):
            await pool.drop_idle()
