# Made from async_sentinel.py by ./dev check --fix; change that one.
"""The server of a plain URL, and the primary behind sentinels.

The primary is looked up when a connection is made, and forgotten when a connection breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from delayq.store.connect.address import Address, Node
from delayq.store.connect.exchange import reason_of
from delayq.store.connect.server_state import Fault, WrongKind, mode_in, packed
from delayq.store.connect.threads import Connection, Semaphore, Server


def ask(connection: Connection, *words: str) -> Any:
    """The reply to one command; raises a Fault if it is an error."""
    connection.send(packed(*words))
    reply = connection.receive()
    if isinstance(reply, Exception):
        raise Fault(reply)
    return reply


def mode_of(connection: Connection) -> str:
    """Return the mode of a server, or '' if it does not say it; raises Fault."""
    try:
        return mode_in(ask(connection, "HELLO"))
    except Fault as fault:
        if isinstance(fault.error, redis.exceptions.ConnectionError):
            raise
        return ""  # an old server, or its user may not run the command


def ask_once(server: Server, address: Address, *words: str) -> Any:
    """Return the reply of a server to one command. Raises Fault, also if the URL is for another kind."""
    connection = server.connect()
    try:
        return ask(connection, *words)
    except Fault as fault:
        if not isinstance(fault.error, redis.exceptions.ConnectionError):
            mode = mode_of(connection)
            if mode not in ("", address.kind):
                raise Fault(WrongKind.of(mode, address.scheme)) from None
        raise
    finally:
        connection.close()


class Single(Server):
    """Makes connections to the server of a plain URL.

    Before its first use it is asked for its kind: a node of a cluster would take some commands, and refuse others.
    """

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__(url, timeout)
        self._scheme = url.partition(":")[0]
        self._asked = False

    def connect(self) -> Connection:
        """Return a connection; raises Fault."""
        connection = super().connect()
        if self._asked:
            return connection
        try:
            mode = mode_of(connection)
            if mode not in ("", "standalone"):
                raise Fault(WrongKind.of(mode, self._scheme))
        except BaseException:
            connection.close()
            raise
        self._asked = True
        return connection


class Named(NamedTuple):
    """A server that a sentinel names."""

    node: Node
    server: Server


class Primary:
    """Makes connections to the server that the sentinels name."""

    def __init__(self, address: Address, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self.after_fork()
        self._sentinels = list(address.nodes)
        self._named: Named | None = None
        self._known: Server | None = None  # the last server, kept after it is forgotten

    def connect(self) -> Connection:
        """A connection to the primary; raises Fault.

        A sentinel may be the only one that still names a server, for example after it was cut off. So if that server is not
        the primary, the next sentinel is asked, until none is left.
        """
        left = list(self._sentinels)
        wrong: list[Node] = []
        last: Fault | None = None
        while True:
            named = self._named
            if named is None or named.node in wrong:
                named = self._resolve(left, wrong, last)
            try:
                return self._checked(named.server)
            except Fault as fault:
                last = fault
                wrong.append(named.node)
                if self._named is named:  # by the first caller that finds this out
                    self.forget()

    def _checked(self, server: Server) -> Connection:
        connection = server.connect()
        try:
            _check(ask(connection, "ROLE"))
        except BaseException:
            connection.close()
            raise
        return connection

    def forget(self) -> None:
        """Ask again before the next connection is made."""
        self._named = None

    def outdate(self) -> None:
        """Mark every connection made so far as `outdated`."""
        if (server := self._known) is not None:
            server.outdate()
        self.forget()

    def after_fork(self) -> None:
        """Release the lock after a fork: a task of the parent process that held it does not exist here."""
        self._asking = Semaphore(1, self._timeout)

    def _resolve(self, left: list[Node], wrong: Sequence[Node], last: Fault | None) -> Named:
        """Return the server that one of the sentinels that are left names, and that is none of the wrong ones.

        Raises the last Fault of these if there is none.
        """
        lease = self._asking.acquire()
        try:
            if (named := self._named) is not None and named.node not in wrong:  # another task has asked meanwhile
                return named
            while left:
                sentinel = left.pop(0)
                try:
                    node = self._ask(sentinel)
                except Fault as fault:
                    last = last if last is not None and isinstance(last.error, WrongKind) else fault
                    continue
                if node is not None and node not in wrong:
                    self._sentinels.sort(key=lambda one, first=sentinel: one != first)  # type: ignore[misc]  # a default binds it
                    server = self._known = Server(self._address.url_of(node), self._timeout)
                    named = self._named = Named(node, server)
                    return named
        finally:
            self._asking.release(lease)
        if last is not None and (wrong or isinstance(last.error, WrongKind)):
            raise last
        why = f": {reason_of(last.error)}" if last is not None else ", they do not know it"
        raise Fault(redis.exceptions.ConnectionError(f"no sentinel names the primary of {self._address.service}{why}"))

    def _ask(self, sentinel: Node) -> Node | None:
        url = self._address.url_of(sentinel, sentinel=True)
        # The sentinels share the timeout, so that a silent one leaves time for the others.
        server = Server(url, self._timeout / len(self._sentinels))
        reply = ask_once(server, self._address, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
        return (reply[0].decode(), int(reply[1])) if reply else None


def _check(role: Any) -> None:
    if role[0] != b"master":
        raise Fault(redis.exceptions.ConnectionError("the sentinels name a server that is not a primary"))
