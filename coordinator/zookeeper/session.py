"""One client of ZooKeeper with its session: few calls, each of them bounded, with errors of our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from coordinator.errors import CoordinatorError

__all__ = ["Node", "Session", "Watch"]

#: Called with kazoo's event, in a thread of kazoo's: it must not block.
Watch = Callable[[Any], None]

# kazoo tells every attempt to connect; the coordinator tells what became of it. Who wants both adds a handler.
_kazoo_log = logging.getLogger("delayq.kazoo")
_kazoo_log.addHandler(logging.NullHandler())


class Node(msgspec.Struct, frozen=True):
    """A znode: what is in it, the transaction that made it, and whether it is this very session's."""

    data: bytes
    czxid: int
    ours: bool


class Session:
    """Connects and connects again until it is closed; a session that expired is followed by a new one.

    `told` gets kazoo's states in kazoo's connection thread, which it must not block: 'CONNECTED', 'SUSPENDED' (the
    session may live on), 'LOST' (it is over; said by a server, or by the end of that thread). After a call that
    raised CoordinatorError its outcome is unknown: look before doing it again.
    """

    def __init__(self, hosts: str, timeout: int, told: Callable[[Session, str], None]) -> None:
        self._hosts = hosts
        self._seconds = timeout / 1000
        self._client = KazooClient(
            hosts=hosts, timeout=self._seconds, logger=_kazoo_log,
            # By default the pauses between attempts grow to an hour.
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1),
        )  # fmt: skip
        self._client.add_listener(lambda state: told(self, str(state)))

    def open(self) -> None:
        """Connect; raises CoordinatorError if no server answers within the session's time-out."""
        try:
            self._client.start(timeout=self._seconds)
        except KazooTimeoutError:
            raise CoordinatorError(
                f"no ZooKeeper of {self._hosts} answered within {self._seconds:g} s: "
                "start it, or set DELAYQ_ZOOKEEPER to where it is"
            ) from None

    def close(self) -> None:
        """End the session: ZooKeeper removes its znodes at once, all together. Bounded (10 s, kazoo's own)."""
        with suppress(KazooException, OSError, AttributeError):  # AttributeError: kazoo's, if it never connected
            self._client.stop()
        with suppress(Exception):  # kazoo raises a plain Exception if its thread did not end in time
            self._client.close()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, with a session."""
        return bool(self._client.connected)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> Node | None:
        """Make an ephemeral znode, and those above it; None if there is one already."""
        try:
            asked = self._kazoo().create_async(path, data, ephemeral=True, makepath=True, include_data=True)
            _, stat = self._do(asked, NodeExistsError)
        except NodeExistsError:
            return None
        return Node(data, stat.czxid, True)

    def look(self, path: str, watch: Watch | None = None) -> Node | None:
        """The znode, without what is in it; None if there is none. `watch` is called once, when that changes."""
        stat = self._do(self._kazoo().exists_async(path, watch=watch))
        return None if stat is None else self._node(b"", stat)

    def read(self, paths: Iterable[str], watch: Watch | None = None) -> dict[str, Node]:
        """The znodes that there are among these, asked for all at once."""
        asked = [(path, self._kazoo().get_async(path, watch=watch)) for path in paths]
        found = {}
        for path, reply in asked:
            with suppress(NoNodeError):
                data, stat = self._do(reply, NoNodeError)
                found[path] = self._node(data, stat)
        return found

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names below a znode; none if it is not there."""
        try:
            return sorted(self._do(self._kazoo().get_children_async(path, watch=watch), NoNodeError))
        except NoNodeError:
            return []

    def write(self, path: str, data: bytes) -> None:
        """Put data into a znode, if it is there."""
        with suppress(NoNodeError):
            self._do(self._kazoo().set_async(path, data), NoNodeError)

    def keep(self, path: str, data: bytes) -> None:
        """Put data into a znode that outlives this session; made if it is not there."""
        try:
            self._do(self._kazoo().set_async(path, data), NoNodeError)
        except NoNodeError:
            with suppress(NodeExistsError):
                self._do(self._kazoo().create_async(path, data, makepath=True), NodeExistsError)

    def delete(self, path: str) -> None:
        """Remove a znode, if it is there."""
        with suppress(NoNodeError):
            self._do(self._kazoo().delete_async(path), NoNodeError)

    def _node(self, data: bytes, stat: Any) -> Node:
        mine = self._client.client_id
        return Node(data, stat.czxid, mine is not None and stat.ephemeralOwner == mine[0])

    def _kazoo(self) -> KazooClient:
        """The client. Without a connection it would keep a call until it has one, and the caller waiting."""
        if not self._client.connected:
            raise CoordinatorError(f"ZooKeeper is away ({self._hosts}): no connection")
        return self._client

    def _do(self, reply: Any, *answers: type[KazooException]) -> Any:
        """Wait for a reply; `answers` are the errors that say how things stand, any other means 'away'."""
        try:
            return reply.get(timeout=self._seconds)
        except answers:
            raise
        except (KazooException, KazooTimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise CoordinatorError(f"ZooKeeper is away ({self._hosts}): {reason}") from None
