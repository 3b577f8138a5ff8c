"""Which topics the live workers take, by the route tables in their lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from delayq.clock import Clock, SystemClock
from delayq.errors import InvalidMessage
from delayq.message import Message
from delayq.nodes import NodeLine, RouteLine, route_of
from delayq.remembered import Remembered
from delayq.routes import Check, Routes

__all__ = ["EARLY", "LOGGER", "NO_WORKER", "OLDEST", "KnownRoutes", "name_of_route"]

#: The age (ms) of the tables from which one caller reads them again while the others use what is known, and the age from
#: which every caller does: a table counts within 5 s after a worker published it.
EARLY: Final = 2_000
OLDEST: Final = 4_000
#: So many topics of which the judgment is kept: they come from outside.
TOPICS: Final = 10_000
NO_WORKER: Final = (
    "no worker is live: its routes are unknown, so every topic is accepted; nothing is delivered until a worker starts"
)

#: The logger that warns: for people who use the client in a program of their own.
LOGGER: Final = "delayq.client"


class KnownRoutes:
    """Tells whether a message can be delivered: some live worker has a route for its topic, and the target can take it.

    Without a live worker every topic is accepted, and the log says so once. A line of an older worker has no table: that
    worker may have any route.

    `own` is the table of this process. It never decides about a topic. It knows more about targets than the lines do, such
    as the path of a URL: its check of a target counts where the workers have the same route, or where no worker is live.

    Threads may share it: each change replaces one attribute.
    """

    __slots__ = ("_any_live", "_asked_at", "_checks", "_clock", "_judged", "_read_at", "_warned", "own", "tables")

    def __init__(self, own: Routes, clock: Clock | None = None, *, checks: bool = True) -> None:
        self.own = own
        #: The different tables of the live workers; None: no table decides.
        self.tables: tuple[tuple[RouteLine, ...], ...] | None = None
        self._clock = clock if clock is not None else SystemClock()
        self._checks = checks
        self._judged: Remembered[str, Check | None] = Remembered(TOPICS)
        self._any_live = True
        self._read_at: int | None = None
        self._asked_at: int | None = None
        self._warned = not checks

    def be_quiet(self) -> None:
        """Do not warn: somebody else does."""
        self._warned = True

    @property
    def outdated(self) -> bool:
        """Whether the caller has to read the workers' lines now."""
        if not self._checks:
            return False
        if self._read_at is None:
            return True
        now = self._clock.monotonic()
        age = now - self._read_at
        if age < EARLY:
            return False
        if age < OLDEST and self._asked_at is not None and now - self._asked_at < EARLY:
            return False
        self._asked_at = now
        return True

    def take(self, lines: Iterable[NodeLine]) -> None:
        """Know the lines of the workers as they were just read."""
        live = [line for line in lines if not line.stale]
        self._any_live = bool(live)
        self._know(_tables(live) or None if all(line.tells_routes for line in live) else None)

    @property
    def without_worker(self) -> bool:
        """Whether no worker is live, so that nobody can tell which topics have a route."""
        return self._checks and not self._any_live

    def warn(self) -> None:
        """Warn once if no worker is live."""
        if self.without_worker and not self._warned:
            self._warned = True
            logging.getLogger(LOGGER).warning(NO_WORKER)

    def forget(self) -> None:
        """The lines could not be read: no table decides."""
        self._any_live = True  # as far as anybody knows
        self._know(None)

    def _know(self, tables: tuple[tuple[RouteLine, ...], ...] | None) -> None:
        self._read_at = self._clock.monotonic()
        if tables != self.tables:
            self.tables = tables
            self._judged = Remembered(TOPICS)

    def check(self, message: Message) -> None:
        """Raise InvalidMessage for a topic that no live worker takes, and for a message that the target never takes."""
        if self._checks and (check := self._judge(message.topic)) is not None:
            check(message)

    def refuses(self, topic: str) -> bool:
        """Whether no live worker takes the topic."""
        return self._checks and self._judge(topic) is _refuse

    @property
    def refuses_some(self) -> bool:
        """Whether there may be a topic that no live worker takes."""
        tables = self.tables
        return (
            self._checks and tables is not None and not any(route.match == "*" for table in tables for route in table)
        )

    def reads_body(self, topic: str) -> bool:
        """Whether the body may decide if the target can take a message of the topic."""
        check = self._judge(topic) if self._checks else None
        return check is not None and getattr(check, "reads_body", True)

    def _judge(self, topic: str) -> Check | None:
        judged = self._judged
        try:
            return judged[topic]
        except KeyError:
            pass
        return judged.keep(topic, self._check_of(topic))

    def _check_of(self, topic: str) -> Check | None:
        route, check = self.own.look(topic)
        tables = self.tables
        if tables is None:
            self.warn()
            return check
        taking = [found for table in tables if (found := route_of(topic, table)) is not None]
        if not taking:
            return _refuse
        if route is None:
            return None
        own = route.name, route.match, route.shown_target
        return check if all((one.name, one.match, one.target) == own for one in taking) else None


def name_of_route(topic: str, lines: Iterable[NodeLine], own: Routes) -> str | None:
    """The name of the route that takes a topic: by the first live worker that has one, else by the newest line of a dead one.

    Without any line it is by the table of this process.
    """
    told = [line for line in lines if line.tells_routes]
    for line in sorted(told, key=lambda one: (one.stale, -one.seen if one.stale else 0)):
        if (route := line.route_of(topic)) is not None:
            return route.name
    if any(not line.stale for line in told):
        return None
    found = own.find(topic)
    return found.name if found is not None else None


def _refuse(message: Message) -> None:
    raise InvalidMessage(
        "topic", f"no live worker has a route for {message.topic!r}; add one to DELAYQ_ROUTES of the workers"
    )


def _tables(live: Iterable[NodeLine]) -> tuple[tuple[RouteLine, ...], ...]:
    """The tables without what changes while a worker runs."""
    tables = (tuple(RouteLine(one.name, one.match, one.target) for one in line.routes) for line in live)
    return tuple(dict.fromkeys(tables))
