"""The topics that live workers have routes for, by the tables that they publish."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from delayq.base.clock import Clock, SystemClock
from delayq.base.errors import InvalidMessage
from delayq.base.remembered import Remembered
from delayq.domain.message import Message
from delayq.domain.nodes import NodeLine, RouteLine, route_of
from delayq.domain.patterns import compiled
from delayq.domain.routes import Check, Routes

#: From the age EARLY (ms) on, one caller reads the tables again while the others use the known ones. From the age OLDEST on,
#: every caller reads them, so that a new table is known within 5 s after a worker published it.
EARLY: Final = 2_000
OLDEST: Final = 4_000
#: Topics whose check is remembered; callers may name any number of topics.
TOPICS: Final = 10_000
NO_WORKER: Final = (
    "no worker is live, so its routes are unknown and every topic is accepted; messages are delivered once a "
    "worker starts"
)

#: It stands for the topic in the name of a stream.
TOPIC_MARK: Final = "{topic}"

#: The name of the logger that warns in a program that uses the client.
LOGGER: Final = "delayq.client"


class KnownRoutes:
    """Checks whether a message can be delivered: a live worker has a route for its topic, and the target accepts it.

    Without a live worker every topic is accepted, and one line of the log reports that. An older worker publishes no
    table, so it may have any route.

    `own` is the table of this process. It never decides about a topic, but it knows more about targets than the
    published tables, such as the path of a URL. So its check of a target applies if the workers have the same route, or
    if no worker is live.

    Threads may share it: each change replaces one attribute.
    """

    __slots__ = (
        "_any_live",
        "_asked_at",
        "_checks",
        "_clock",
        "_judged",
        "_read_at",
        "_sharing",
        "_warned",
        "own",
        "tables",
    )

    def __init__(self, own: Routes, clock: Clock | None = None, *, checks: bool = True) -> None:
        self.own = own
        #: The different tables of the live workers; None: no table decides.
        self.tables: tuple[tuple[RouteLine, ...], ...] | None = None
        self._clock = clock if clock is not None else SystemClock()
        self._checks = checks
        self._judged: Remembered[str, Check | None] = Remembered(TOPICS)
        self._sharing: Remembered[str, frozenset[str]] = Remembered(TOPICS)
        self._any_live = True
        self._read_at: int | None = None
        self._asked_at: int | None = None
        self._warned = not checks

    def be_quiet(self) -> None:
        """Never warn, because the caller does."""
        self._warned = True

    @property
    def outdated(self) -> bool:
        """Whether the caller has to read the tables now."""
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
        """Record the tables of the workers that were just read."""
        live = [line for line in lines if not line.stale]
        self._any_live = bool(live)
        self._know(_tables(live) or None if all(line.tells_routes for line in live) else None)

    @property
    def without_worker(self) -> bool:
        """Whether no worker is live, so that it is unknown which topics have a route."""
        return self._checks and not self._any_live

    def warn(self) -> None:
        """Warn once if no worker is live."""
        if self.without_worker and not self._warned:
            self._warned = True
            logging.getLogger(LOGGER).warning(NO_WORKER)

    def forget(self) -> None:
        """Record that the tables could not be read: every topic is accepted."""
        self._any_live = True  # it is unknown, so there is no warning
        self._know(None)

    def _know(self, tables: tuple[tuple[RouteLine, ...], ...] | None) -> None:
        self._read_at = self._clock.monotonic()
        if tables != self.tables:
            self.tables = tables
            self._judged = Remembered(TOPICS)
            self._sharing = Remembered(TOPICS)

    def check(self, message: Message) -> None:
        """Raise InvalidMessage for a topic without a route, and for a message that the target always refuses."""
        if self._checks and (check := self._judge(message.topic)) is not None:
            check(message)

    def refuses(self, topic: str) -> bool:
        """Whether no live worker has a route for the topic."""
        return self._checks and self._judge(topic) is _refuse

    @property
    def refuses_some(self) -> bool:
        """Whether there may be topics without a route."""
        tables = self.tables
        return (
            self._checks and tables is not None and not any(route.match == "*" for table in tables for route in table)
        )

    def route_of(self, topic: str) -> RouteLine | None:
        """The route of a topic in the first table that has one; without tables, in the table of this process."""
        if self.tables is None:
            route = self.own.find(topic)
            if route is None:
                return None
            return RouteLine(
                route.name, route.match, route.shown_target, stream=route.own_stream, per_queue=route.per_queue
            )
        return next((found for table in self.tables if (found := route_of(topic, table)) is not None), None)

    def topics_in(self, stream: str, *, per_queue: bool) -> frozenset[str]:
        """The topics whose messages live workers deliver to this stream of delayq's own Redis.

        These are the patterns of routes to one stream, if there are some. Otherwise they are single topics: the stream has the
        name of a topic, and other routes may make the same name of another one.
        """
        place = f"{per_queue:d}{stream}"
        try:
            return self._sharing[place]
        except KeyError:
            pass
        if self.tables is None:
            lines = [(one.match, one.own_stream, one.per_queue) for one in self.own.table]
        else:
            lines = [(one.match, one.stream, one.per_queue) for table in self.tables for one in table]
        found, single = set[str](), set[str]()
        for match, template, has_own in lines:
            if template is None or has_own is not per_queue:
                continue
            before, *others = template.split(TOPIC_MARK)
            if not others:
                found |= {match} if template == stream else set()
                continue
            size = (len(stream) - len(template.replace(TOPIC_MARK, ""))) // len(others)
            topic = stream[len(before) : len(before) + max(size, 0)]
            if topic and template.replace(TOPIC_MARK, topic) == stream and compiled(match).match(topic):
                single.add(topic)
        return self._sharing.keep(place, frozenset(found or single))

    def reads_body(self, topic: str) -> bool:
        """Whether the target's check reads the bodies of messages of the topic."""
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
    """The name of the route for a topic: of the first live worker that has one, else of the worker that died last.

    Without any worker, the table of this process decides.
    """
    reporting = [line for line in lines if line.tells_routes]
    for line in sorted(reporting, key=lambda one: (one.stale, -one.seen if one.stale else 0)):
        if (route := line.route_of(topic)) is not None:
            return route.name
    if any(not line.stale for line in reporting):
        return None
    found = own.find(topic)
    return found.name if found is not None else None


def _refuse(message: Message) -> None:
    raise InvalidMessage(
        "topic", f"no live worker has a route for {message.topic!r}; add one to DELAYQ_ROUTES of the workers"
    )


def _tables(live: Iterable[NodeLine]) -> tuple[tuple[RouteLine, ...], ...]:
    """The different tables, without the parts that change while a worker runs."""
    tables = (
        tuple(
            RouteLine(one.name, one.match, one.target, stream=one.stream, per_queue=one.per_queue)
            for one in line.routes
        )
        for line in live
    )
    return tuple(dict.fromkeys(tables))
