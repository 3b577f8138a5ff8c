"""The primary behind sentinels: asked for when a connection is made, forgotten when one breaks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

import redis
from hiredis import pack_command

from delayq.store.connect.address import Address, Node
from delayq.store.connect.exchange import FAULTS, async_factory, connection_options, drop, receive

__all__ = ["AsyncPrimary", "Primary", "deposed"]

ROLE: Final = pack_command(("ROLE",))


def deposed(error: Exception) -> bool:
    """Whether a server's error says that it is no (working) primary any more, so that the sentinels are to be asked."""
    return isinstance(error, redis.exceptions.ReadOnlyError) or str(error).startswith("NOREPLICAS")


def _question(service: str) -> Any:
    words: Any = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    return pack_command(words)


def _node(reply: Any) -> Node | None:
    return (reply[0].decode(), int(reply[1])) if reply else None


def _unknown(address: Address, last: Exception | None) -> redis.exceptions.ConnectionError:
    why = f": {last}" if last is not None else ", they do not know it"
    return redis.exceptions.ConnectionError(f"no sentinel names the primary of {address.service}{why}")


def _check(reply: Any) -> None:
    if reply[0] != b"master":
        raise redis.exceptions.ConnectionError("the sentinels name a server that is no primary")


class Primary:
    """Makes connections to whatever server the sentinels name, for threads."""

    def __init__(self, address: Address, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._lock = threading.Lock()
        self._sentinels = list(address.nodes)
        self._factory: redis.ConnectionPool | None = None
        self._pool(address.nodes[0]).make_connection()  # it connects to nothing yet, but refuses unknown options

    def _pool(self, node: Node, *, sentinel: bool = False) -> redis.ConnectionPool:
        url = self._address.url_of(node, sentinel=sentinel)
        return redis.ConnectionPool.from_url(url, **connection_options(url, self._timeout))

    def make_connection(self) -> Any:
        """A connection to the primary; raises what redis-py does."""
        factory = self._factory or self._resolve()
        connection: Any = factory.make_connection()
        try:
            connection.connect()
            connection.send_packed_command((ROLE,), check_health=False)
            _check(connection.read_response())
        except FAULTS:
            connection.disconnect()
            self.forget()
            raise
        return connection

    def forget(self) -> None:
        """Ask anew before the next connection is made."""
        self._factory = None

    def _resolve(self) -> redis.ConnectionPool:
        if not self._lock.acquire(timeout=self._timeout):
            raise redis.exceptions.ConnectionError("the sentinels did not answer in time")
        try:
            if self._factory is not None:  # another thread has asked meanwhile
                return self._factory
            last: Exception | None = None
            for sentinel in list(self._sentinels):
                try:
                    node = self._ask(sentinel)
                except FAULTS as error:
                    last = error
                    continue
                if node is not None:
                    self._sentinels.sort(key=lambda one, first=sentinel: one != first)  # type: ignore[misc]  # a default binds it
                    factory = self._factory = self._pool(node)
                    return factory
            raise _unknown(self._address, last)
        finally:
            self._lock.release()

    def _ask(self, sentinel: Node) -> Node | None:
        connection: Any = self._pool(sentinel, sentinel=True).make_connection()
        try:
            connection.connect()
            connection.send_packed_command((_question(self._address.service),), check_health=False)
            return _node(connection.read_response())
        finally:
            connection.disconnect()


class AsyncPrimary:
    """`Primary` for one event loop."""

    def __init__(self, address: Address, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._sentinels = list(address.nodes)
        self._factory: Any = None
        self._pool(address.nodes[0])  # refuses unknown options

    def _pool(self, node: Node, *, sentinel: bool = False) -> Any:
        url = self._address.url_of(node, sentinel=sentinel)
        return async_factory(url, self._timeout)

    async def make_connection(self) -> Any:
        """A connection to the primary; raises what redis-py does."""
        factory = self._factory or await self._resolve()
        connection = factory.make_connection()
        try:
            async with asyncio.timeout(self._timeout):
                await connection.connect()
                await connection.send_packed_command(ROLE, check_health=False)
                _check(await receive(connection))
        except BaseException:
            await drop(connection)
            self.forget()
            raise
        return connection

    def forget(self) -> None:
        """Ask anew before the next connection is made."""
        self._factory = None

    async def _resolve(self) -> Any:
        last: Exception | None = None
        for sentinel in list(self._sentinels):
            try:
                node = await self._ask(sentinel)
            except FAULTS as error:
                last = error
                continue
            if node is not None:
                self._sentinels.sort(key=lambda one, first=sentinel: one != first)  # type: ignore[misc]  # a default binds it
                self._factory = self._pool(node)
                return self._factory
        raise _unknown(self._address, last)

    async def _ask(self, sentinel: Node) -> Node | None:
        connection = self._pool(sentinel, sentinel=True).make_connection()
        try:
            async with asyncio.timeout(min(self._timeout, 1.0)):
                await connection.connect()
                await connection.send_packed_command(_question(self._address.service), check_health=False)
                return _node(await receive(connection))
        finally:
            await drop(connection)
