"""The entry of this node in ZooKeeper, by which other nodes know that it lives and how it is."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final

import msgspec
import structlog

from coordinator.zookeeper.crash_loop import Starts
from coordinator.zookeeper.membership import Entry, Flaps, Link, encode
from coordinator.zookeeper.session import Session
from delayq.base.clock import Clock

#: ms for which a clock that was far behind must be right before this node gets queues again.
STEADY: Final = 30_000
log = structlog.get_logger()


class OwnEntry:
    """An ephemeral znode. Times are ms."""

    def __init__(self, root: str, name: str, address: str, session_timeout: int, clock: Clock) -> None:
        self._path = f"{root}/nodes/{name}"
        self._name = name
        self._timeout = session_timeout
        self._clock = clock
        self._entry = Entry(address=address, version=version("delayq"), since=clock.now())
        self._link = Link(clock)
        self._time = Link(clock, steady=STEADY)
        self._flaps = Flaps(clock)
        self._starts = Starts(f"{root}/starts", name, self._entry.since, clock)
        self._published: Entry | None = None
        self._waiting_since: int | None = None

    def record(self, reachable: bool, behind: bool) -> bool:
        """Record whether the node reaches Redis and whether its clock is behind; True if the entry must be written."""
        self._link.record(reachable)
        self._time.record(not behind)
        published = self._published
        return published is not None and (published.redis, published.clock) != (self._link.state, self._time.state)

    def lost(self) -> None:
        """Note that the session has ended."""
        self._flaps.lost()

    def register(self, session: Session, changed: Callable[[Any], None]) -> bool:
        """Create or update the entry; False while another session has the name."""
        hold_until = max(self._flaps.hold_until, self._starts.hold_until(session))
        entry = msgspec.structs.replace(
            self._entry, redis=self._link.state, clock=self._time.state, hold_until=hold_until
        )
        known = session.look(self._path, changed)
        node = known or session.create(self._path, encode(entry))
        if node is None or not node.ours:
            self._wait_for_the_name()
            return False
        if known is not None and entry != self._published:
            session.write(self._path, encode(entry))
        self._published = entry
        self._waiting_since = None
        return True

    def _wait_for_the_name(self) -> None:
        """Log that this node waits: it was killed, and its former session has not expired."""
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
            log.info("waiting_for_own_name", node=self._name)
        elif now - self._waiting_since > 2 * self._timeout:
            self._waiting_since = now
            log.error(
                "name_taken",
                node=self._name,
                hint=f"Another live node has the name {self._name}, too. Give each node its own DELAYQ_NODE.",
            )

    def stopped(self, session: Session) -> None:
        """Note that the node stops in order, so its earlier starts no longer count."""
        self._starts.forget(session)
