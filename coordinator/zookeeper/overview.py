"""An overview of nodes and owners. Reading it writes nothing to ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.zookeeper.access import OPEN, Access
from coordinator.zookeeper.membership import Entry, decode
from coordinator.zookeeper.session import Session
from delayq.base.clock import Clock

#: ms to wait for further changes, because queues change their owners one after the other.
SETTLE: Final = 100


class Member(msgspec.Struct, frozen=True):
    """A live node: its entry, and the queues that it owns."""

    name: str
    entry: Entry
    queues: tuple[int, ...]


class Overview(msgspec.Struct, frozen=True):
    """All live nodes by name, and the queues without an owner; None if the list of all queues is not known."""

    members: tuple[Member, ...]
    unowned: tuple[int, ...] | None


class Overviews:
    """Reads overviews, and waits for a reason to read again. Its session owns nothing, so a session that fails is replaced.

    `queues` returns the numbers of all queues, or None. `look` and `wait` belong to one thread.
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        session_timeout: int,
        queues: Callable[[], Collection[int] | None],
        clock: Clock,
        access: Access = OPEN,
    ) -> None:
        self._hosts = hosts
        self._timeout = session_timeout
        self._access = access
        self._nodes = f"{root}/nodes"
        self._owners = f"{root}/owners"
        self._queues = queues
        self._clock = clock
        self._session: Session | None = None
        self._condition = threading.Condition()
        self._woken = False

    def look(self) -> Overview:
        """Read an overview; raises CoordinatorError when ZooKeeper is away."""
        queues = self._queues()
        with self._condition:
            self._woken = False
        try:
            return self._read(self._connected(), queues)
        except CoordinatorError:
            self.close()
            raise

    def wait(self, ms: float) -> None:
        """Wait until something may have changed, for `ms` at most."""
        with self._condition:
            if not self._woken:
                self._clock.wait(self._condition, ms)
            if self._woken:
                self._clock.wait(self._condition, SETTLE)

    def close(self) -> None:
        """End the session; the next `look` starts a new one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self) -> Session:
        if self._session is None:
            session = Session(self._hosts, self._timeout, self._state_changed, self._access)
            try:
                session.open()
            except CoordinatorError:
                session.close()
                raise
            except BaseException:  # that of a signal: kazoo would wait for its connection, and the process ends
                session.abandon()
                raise
            self._session = session
        return self._session

    def _read(self, session: Session, queues: Collection[int] | None) -> Overview:
        entries = session.below(self._nodes, self._changed, self._changed)
        owned: dict[str, set[int]] = {name: set() for name in entries}
        for number, node in session.below(self._owners, self._changed).items():
            with suppress(ValueError):  # a znode that delayq did not write
                owned.setdefault(node.data.decode(errors="replace"), set()).add(int(number))
        known = {name: decode(node.data) for name, node in entries.items()}
        members = tuple(
            Member(name, known.get(name, Entry()), tuple(sorted(mine))) for name, mine in sorted(owned.items())
        )
        unowned = None if queues is None else tuple(sorted(set(queues).difference(*owned.values())))
        return Overview(members, unowned)

    # -- called in kazoo's threads -------------------------------------------------------------------------------------

    def _changed(self, event: Any) -> None:
        self._wake()

    def _state_changed(self, session: Session, state: str) -> None:
        if state != "CONNECTED":
            self._wake()

    def _wake(self) -> None:
        with self._condition:
            self._woken = True
            self._condition.notify_all()
