"""The primary behind sentinels: looked up when a connection is made, forgotten when a connection breaks."""

from __future__ import annotations

from typing import Any

import redis

from delayq.store.connect.address import Address, Node
from delayq.store.connect.event_loop import Connection, Semaphore, Server
from delayq.store.connect.exchange import reason_of
from delayq.store.connect.server_state import Fault, packed

__all__ = ["AsyncPrimary", "ask"]


async def ask(connection: Connection, *words: str) -> Any:
    """The reply to one command; raises a Fault if it is an error."""
    await connection.send(packed(*words))
    reply = await connection.receive()
    if isinstance(reply, Exception):
        raise Fault(reply)
    return reply


class AsyncPrimary:
    """Makes connections to the server that the sentinels name."""

    def __init__(self, address: Address, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self.after_fork()
        self._sentinels = list(address.nodes)
        self._server: Server | None = None
        self._known: Server | None = None  # the last server, kept after it is forgotten

    async def connect(self) -> Connection:
        """A connection to the primary; raises Fault."""
        server = self._server or await self._resolve()
        try:
            connection = await server.connect()
            try:
                _check(await ask(connection, "ROLE"))
            except BaseException:
                await connection.close()
                raise
        except Fault:
            if self._server is server:  # by the first caller that finds this out
                self.forget()
                # The sentinel may be the only one that still names this server, so another one is asked first now.
                self._sentinels = [*self._sentinels[1:], self._sentinels[0]]
            raise
        return connection

    def forget(self) -> None:
        """Ask again before the next connection is made."""
        self._server = None

    def outdate(self) -> None:
        """Mark every connection made so far as `outdated`."""
        if (server := self._known) is not None:
            server.outdate()
        self.forget()

    def after_fork(self) -> None:
        """Release the lock after a fork: a task of the parent process that held it does not exist here."""
        self._asking = Semaphore(1, self._timeout)

    async def _resolve(self) -> Server:
        lease = await self._asking.acquire()
        try:
            if self._server is not None:  # another task has asked meanwhile
                return self._server
            last: Exception | None = None
            for sentinel in list(self._sentinels):
                try:
                    node = await self._ask(sentinel)
                except Fault as fault:
                    last = fault.error
                    continue
                if node is not None:
                    self._sentinels.sort(key=lambda one, first=sentinel: one != first)  # type: ignore[misc]  # a default binds it
                    server = self._server = self._known = Server(self._address.url_of(node), self._timeout)
                    return server
        finally:
            self._asking.release(lease)
        why = f": {reason_of(last)}" if last is not None else ", they do not know it"
        raise Fault(redis.exceptions.ConnectionError(f"no sentinel names the primary of {self._address.service}{why}"))

    async def _ask(self, sentinel: Node) -> Node | None:
        url = self._address.url_of(sentinel, sentinel=True)
        # The sentinels share the timeout, so that a silent one leaves time for the others.
        connection = await Server(url, self._timeout / len(self._sentinels)).connect()
        try:
            reply = await ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
        finally:
            await connection.close()
        return (reply[0].decode(), int(reply[1])) if reply else None


def _check(role: Any) -> None:
    if role[0] != b"master":
        raise Fault(redis.exceptions.ConnectionError("the sentinels name a server that is not a primary"))
