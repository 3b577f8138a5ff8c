"""`AsyncStore` runs commands from one event loop; see `store`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import redis
from hiredis import pack_command

from delayq.errors import ConfigError, StoreError
from delayq.store.commands import Command
from delayq.store.connect import address
from delayq.store.connect.async_cluster import AsyncCluster
from delayq.store.connect.durability import Durability, DurableExchange
from delayq.store.connect.exchange import FAULTS, Exchange, async_factory, drop, receive, send, single, words_of
from delayq.store.connect.peer import Peer
from delayq.store.connect.sentinel import AsyncPrimary, deposed

__all__ = ["AsyncStore"]

T = TypeVar("T")


class AsyncStore:
    """Runs commands from one event loop; see `Store`."""

    durability: Durability | None = None

    def __init__(self, url: str, *, timeout: float = 2.0, connections: int = 32, flags: bool = True) -> None:
        self.url = url
        self._flags = flags
        self._timeout = timeout
        where = address.parse(url)
        self._primary: AsyncPrimary | None = None
        self._cluster: AsyncCluster | None = None
        self._factory: Any
        try:
            if where.kind == address.CLUSTER:
                self._cluster = AsyncCluster(where, timeout=timeout, connections=connections, flags=flags)
            elif where.kind == address.SENTINEL:
                self._primary = AsyncPrimary(where, timeout)
            else:
                self._factory = async_factory(url, timeout)
        except (TypeError, ValueError, redis.exceptions.RedisError) as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._idle: list[Any] = []
        self._peer = Peer(timeout)
        self._free = asyncio.Semaphore(connections)

    async def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return single(await self.run_many((command,)))

    async def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies; an error stands in its command's place."""
        if self._cluster is not None:
            return await self._cluster.run_many(commands, self.durability)
        exchange = self._exchange_of(commands)
        while True:
            try:
                await self._with_connection(exchange)
                return exchange.result()
            except FAULTS as error:
                await self._drop_idle()
                if self._primary is not None:
                    self._primary.forget()
                if not exchange.broke(error):
                    return exchange.result()

    def _exchange_of(self, commands: Iterable[Command[Any]]) -> Exchange:
        if self.durability is None:
            return Exchange(commands, self._peer)
        return DurableExchange(commands, self._peer, self.durability)

    async def _with_connection(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise redis.exceptions.ConnectionError("no connection became free in time") from None
        try:
            connection = self._idle.pop() if self._idle else await self._make()
            try:
                if not connection.is_connected:
                    async with asyncio.timeout(self._timeout):  # a server that hangs lets in, and greets nobody
                        await connection.connect()
                await self._exchange(connection, exchange)
            except BaseException:
                await drop(connection)
                raise
            self._idle.append(connection)
        finally:
            self._free.release()

    async def _make(self) -> Any:
        return await self._primary.make_connection() if self._primary is not None else self._factory.make_connection()

    async def _exchange(self, connection: Any, exchange: Exchange) -> None:
        # The time-out is for the server's silence, not for the length of the whole.
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(self._timeout) as bound:
            while True:
                for index, command in exchange.to_send():
                    bound.reschedule(clock() + self._timeout)  # not before the deadline that is sent along
                    await self._send(connection, exchange, index, command)
                    while exchange.full:
                        await self._receive(connection, exchange)
                        bound.reschedule(clock() + self._timeout)
                while exchange.waiting:
                    await self._receive(connection, exchange)
                    bound.reschedule(clock() + self._timeout)
                if exchange.done:
                    return

    async def _send(self, connection: Any, exchange: Exchange, index: int, command: Command[Any]) -> None:
        packed = pack_command(tuple(words_of(command, self._flags, self._peer)))
        exchange.sent(index, command, len(packed))
        await send(connection, packed)

    async def _receive(self, connection: Any, exchange: Exchange) -> None:
        try:
            reply = await receive(connection)
        except redis.exceptions.ResponseError as error:
            if self._primary is not None and deposed(error):  # nothing ran: the sentinels know who is primary now
                raise redis.exceptions.ConnectionError(str(error)) from None
            if (again := exchange.refused(error)) is not None:
                await self._send(connection, exchange, *again)
        else:
            exchange.answered(reply)

    async def _drop_idle(self) -> None:
        while self._idle:
            await drop(self._idle.pop())

    async def close(self) -> None:
        """Close the idle connections."""
        await self._drop_idle()
        if self._cluster is not None:
            await self._cluster.close()
