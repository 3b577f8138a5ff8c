"""Runs commands; nothing else connects to Redis.

redis-py's own retries are off: it would run a script again without a report. Here a command whose reply was lost on
a broken connection is run once more on a new one. That is safe because every script is idempotent. An outcome that stays
unknown is `StoreUnavailable`. A command of a queue's owner is not run once more, because it may run late: its owner
continues as the next incarnation.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from math import inf
from typing import Any, TypeVar

import redis

from delayq.base.errors import ConfigError, StoreError
from delayq.store.commands import Command, Kept
from delayq.store.connect import address
from delayq.store.connect.async_cluster import AsyncCluster, drain, drop_idle, send, send_rest
from delayq.store.connect.async_sentinel import AsyncPrimary, AsyncSingle
from delayq.store.connect.durability import Durability
from delayq.store.connect.event_loop import CLOCK, Connection, Semaphore
from delayq.store.connect.exchange import Exchange, SingleExchange, all_good, outdates, single
from delayq.store.connect.link import Link
from delayq.store.connect.server_state import Fault, ServerState, WrongServer
from delayq.store.keys import KEYS, Keys

T = TypeVar("T")


class AsyncStore:
    """Runs commands, each on a connection of its own.

    `url` is that of a server, of sentinels or of a cluster (see `address`). `timeout` bounds each reply and the wait
    for one of `connections`, in seconds. `durability` is where a change has to be before it is answered. `keys` are
    those of its namespace, for callers that have nothing else.
    """

    durability: Durability | None = None

    def __init__(self, url: str, *, keys: Keys = KEYS, timeout: float = 2.0, connections: int = 64) -> None:
        self.url = url
        self.keys = keys
        self.timeout = timeout  # of a reply, in seconds
        self._durabilities: dict[tuple[int, bool], Durability] = {}  # each learns the abilities of its server
        self._connections = connections
        where = address.parse(url)
        address.check_files(where)
        self._primary: AsyncPrimary | None = None
        self._cluster: AsyncCluster | None = None
        try:
            if where.kind == address.CLUSTER:
                self._cluster = AsyncCluster(where, timeout=timeout, connections=connections)
                return
            if where.kind == address.SENTINEL:
                self._primary = AsyncPrimary(where, timeout)
            self._server = self._primary or AsyncSingle(url, timeout)
            self._state = ServerState(timeout)
        except (TypeError, ValueError, redis.exceptions.RedisError) as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._free = Semaphore(connections, timeout)
        self._process = os.getpid()

    def follow_time(self, *, development: bool) -> None:
        """Record whether this is a development server, whose time `advance` moves: its scripts have another clock."""
        moved_in = self.keys.meta if development else ""
        if self._cluster is None and self._state.moved_in != moved_in:
            self._state.moved_in = moved_in
            self._state.loaded.clear()

    async def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return single(await self.run_many((command,)))

    async def run_all(self, commands: Iterable[Command[T]]) -> list[T]:
        """Run commands like `run_many`, if every answer is needed. Raises the first StoreError."""
        answers: list[T | StoreError] = await self.run_many(commands)
        return all_good(answers)

    async def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies. An error is in its command's place.

        A lazy iterable is read while the server works on earlier commands.
        """
        return await self.end(await self._begin(commands, inf))

    async def follow(self, plan: Generator[Iterable[Command[Any]], list[Any], T]) -> T:
        """Run a plan: the commands that it yields, until it returns."""
        try:
            wanted = next(plan)
            while True:
                wanted = plan.send(await self.run_many(wanted))
        except StopIteration as end:
            result: T = end.value
            return result

    def _durability_of(self, commands: Kept) -> Durability:
        """The barriers that these need, and every change."""
        replicas, fsync = commands.replicas, commands.fsync
        if self.durability is not None:
            replicas, fsync = max(replicas, self.durability.replicas), fsync or self.durability.fsync
        found = self._durabilities.get((replicas, fsync))
        if found is None:
            made = Durability(replicas=replicas, fsync=fsync, timeout=int(self.timeout * 1000))
            found = self._durabilities.setdefault((replicas, fsync), made)
        return found

    async def begin(self, commands: Iterable[Command[Any]], *, within: float = inf) -> Exchange:
        """Send commands; `end` reads the replies, so that the caller may do other work meanwhile.

        In a cluster nothing is left to `end`. For what was not answered `within` that many ms the caller no longer waits.
        """
        return await self._begin(commands, CLOCK.precise() + within)

    async def _begin(self, commands: Iterable[Command[Any]], until: float) -> Exchange:
        durability = self._durability_of(commands) if isinstance(commands, Kept) else self.durability
        if self._cluster is not None:
            return await self._cluster.run(commands, durability, until)
        exchange = SingleExchange(commands, durability, until)
        await self._send(exchange)
        return exchange

    async def end(self, exchange: Exchange) -> list[Any]:
        """Return the answers to the commands that were begun. Calling it again is an error."""
        while isinstance(exchange, SingleExchange):
            is_good = False
            try:
                if exchange.link is not None and exchange.error is None:
                    await self._drain(exchange, exchange.link)
                is_good = exchange.error is None
            except Fault as fault:
                exchange.error = fault.error
            finally:
                await self._take_back(exchange.link, good=is_good)
            if exchange.error is None or not await self._goes_on(exchange, exchange.error):
                break
            await self._send(exchange)
        return exchange.result()

    async def _goes_on(self, exchange: SingleExchange, error: Exception) -> bool:
        """Return whether to continue with a new connection after a fault."""
        if outdates(error):
            self._server.outdate()
        await drop_idle(self._state)
        if self._primary is not None:
            self._primary.forget()
        return exchange.broke(error)

    async def _send(self, exchange: SingleExchange) -> None:
        """Send the commands on a connection, or record the fault."""
        try:
            exchange.link = link = await self._lend(exchange)
            await send(exchange, link, link.to_send(exchange.wanted()))
            await send_rest(exchange, link)
        except Fault as fault:
            exchange.error = fault.error
        except BaseException:
            await self._take_back(exchange.link, good=False)
            raise

    async def _drain(self, exchange: SingleExchange, link: Link) -> None:
        """Read the replies, and send the commands that they require. Raises Fault."""
        await drain(exchange, link)
        while link.barrier is not None and link.barrier.needed:
            await send_rest(exchange, link)
            await drain(exchange, link)
        if exchange.misled:
            raise Fault(WrongServer("READONLY the server is a replica"))

    async def _lend(self, exchange: Exchange) -> Link:
        if os.getpid() != self._process:  # after a fork: the connections belong to the parent and its threads
            self._state.idle = []
            if self._primary is not None:
                self._primary.after_fork()
            self._free = Semaphore(self._connections, self.timeout)
            self._process = os.getpid()  # last: another thread that reads it continues with this state
        lease = await self._free.acquire()
        try:
            connection: Connection = self._state.lend() or await self._server.connect()
            connection.until = exchange.until
            connection.lease = lease
            return Link(connection, self._state, exchange.durability)
        except BaseException:
            self._free.release(lease)
            raise

    async def _take_back(self, link: Link | None, *, good: bool) -> None:
        if link is None:  # no connection was available
            return
        try:
            if good and not link.connection.outdated:
                self._state.idle.append(link.connection)
            else:
                await link.connection.close()
        finally:
            self._free.release(link.connection.lease)

    def server_of(self, key: str) -> address.Node | None:
        """Return the primary of a key in a cluster, as far as it is known; None without a cluster."""
        return self._cluster.server_of(key) if self._cluster is not None else None

    async def connect(self) -> Connection:
        """Return a new connection for a subscription and the like. Raises Fault.

        Leave it once it is `outdated`.
        """
        return await (self._cluster or self._server).connect()

    async def close(self) -> None:
        """Close the idle connections."""
        for state in self._cluster.states if self._cluster is not None else (self._state,):
            await drop_idle(state)
