"""`Store` runs commands from threads; `AsyncStore` beside it does the same for asyncio. Only they talk to Redis.

redis-py's own retries are off: it would run a script again without telling. Here a command whose reply was lost on
a broken connection is run once more on a new one, which is safe because every script is idempotent; what stays
unknown is `StoreUnavailable`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import redis
from hiredis import pack_command

from delayq.errors import ConfigError, StoreError
from delayq.store.commands import Command
from delayq.store.connect import address
from delayq.store.connect.cluster import Cluster
from delayq.store.connect.durability import Durability, DurableExchange
from delayq.store.connect.exchange import FAULTS, Exchange, all_good, connection_options, single, words_of
from delayq.store.connect.peer import Peer
from delayq.store.connect.sentinel import Primary, deposed
from delayq.store.connect.wakes import Wakes

__all__ = ["Store"]

T = TypeVar("T")


class Store:
    """Runs commands from threads, each on a connection of its own while it runs.

    `url` is one server's, that of sentinels or of a cluster (see `address`); `timeout` bounds each reply and the wait
    for one of `connections`, in seconds. `flags` is False for a server that cannot read script flags. `durability`
    says where a change has to be before it is answered.
    """

    durability: Durability | None = None

    def __init__(self, url: str, *, timeout: float = 2.0, connections: int = 64, flags: bool = True) -> None:
        self.url = url
        self._flags = flags
        self._timeout = timeout
        where = address.parse(url)
        self._primary: Primary | None = None
        self._cluster: Cluster | None = None
        self._factory: Any
        try:
            if where.kind == address.CLUSTER:
                self._factory = self._cluster = Cluster(where, timeout=timeout, connections=connections, flags=flags)
            elif where.kind == address.SENTINEL:
                self._factory = self._primary = Primary(where, timeout)
            else:
                self._factory = redis.ConnectionPool.from_url(url, **connection_options(url, timeout))
                self._factory.make_connection()  # it connects to nothing yet, but refuses unknown options
        except (TypeError, ValueError, redis.exceptions.RedisError) as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._idle: list[Any] = []
        self._peer = Peer(timeout)
        self._connections = connections
        self._free = threading.BoundedSemaphore(connections)
        self._process = os.getpid()

    def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return single(self.run_many((command,)))

    def run_all(self, commands: Iterable[Command[T]]) -> list[T]:
        """As `run_many`, where every answer is needed; raises the first StoreError."""
        answers: list[T | StoreError] = self.run_many(commands)
        return all_good(answers)

    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies; an error stands in its command's place.

        A lazy iterable is drawn from while the server works on what was sent before.
        """
        if self._cluster is not None:
            return self._cluster.run_many(commands, self.durability)
        exchange = self._exchange_of(commands)
        while True:
            try:
                with self._connection() as connection:
                    self._exchange(connection, exchange)
                return exchange.result()
            except FAULTS as error:
                self._drop_idle()
                if self._primary is not None:
                    self._primary.forget()
                if not exchange.broke(error):
                    return exchange.result()

    def _exchange_of(self, commands: Iterable[Command[Any]]) -> Exchange:
        if self.durability is None:
            return Exchange(commands, self._peer)
        return DurableExchange(commands, self._peer, self.durability)

    def _exchange(self, connection: Any, exchange: Exchange) -> None:
        while True:
            for index, command in exchange.to_send():
                self._send(connection, exchange, index, command)
                while exchange.full:
                    self._receive(connection, exchange)
            while exchange.waiting:
                self._receive(connection, exchange)
            if exchange.done:
                return

    def _send(self, connection: Any, exchange: Exchange, index: int, command: Command[Any]) -> None:
        words = pack_command(words_of(command, self._flags, self._peer))
        exchange.sent(index, command, len(words))
        connection.send_packed_command((words,), check_health=False)

    def _receive(self, connection: Any, exchange: Exchange) -> None:
        try:
            reply = connection.read_response(disconnect_on_error=True)
        except redis.exceptions.ResponseError as error:
            if self._primary is not None and deposed(error):  # nothing ran: the sentinels know who is primary now
                raise redis.exceptions.ConnectionError(str(error)) from None
            if (again := exchange.refused(error)) is not None:
                self._send(connection, exchange, *again)
        else:
            exchange.answered(reply)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        if os.getpid() != self._process:
            self._leave_to_parent()
        if not self._free.acquire(timeout=self._timeout):
            raise redis.exceptions.ConnectionError("no connection became free in time")
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._factory.make_connection()
            try:
                if not connection.is_connected:
                    connection.connect()
                yield connection
            except BaseException:
                connection.disconnect()
                raise
            self._idle.append(connection)
        finally:
            self._free.release()

    def _leave_to_parent(self) -> None:
        """After a fork: the connections are the parent's, and so are the threads that hold the semaphore."""
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(self._connections)
        self._idle = []

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # other threads take and drop them too
            while True:
                self._idle.pop().disconnect()

    def wakes(self) -> Wakes:
        """A subscription to wakes, on a connection of its own."""
        return Wakes(self._factory.make_connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._drop_idle()
        if self._cluster is not None:
            self._cluster.close()
