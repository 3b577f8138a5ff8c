"""The line of a node: what it publishes about itself in Redis, for `GET /v1/nodes` and `delayq nodes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import NamedTuple

import msgspec
import structlog

from delayq.base.clock import Clock
from delayq.base.errors import StoreError
from delayq.config import Settings
from delayq.domain.nodes import LINE_AGE, LONGEST_REASON, SAME_NAME, Complaint, FailedSend, OpenCircuit, RouteLine
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.targets.redis_stream.target import is_local, lies_here
from workers.node.duties.recent import RecentCounters, RecentLateness
from workers.node.duties.redis_clock import Skew
from workers.node.ownership import Ownership
from workers.queue.queue_context import CurrentPolicies
from workers.sending.observer import NO_OBSERVER, Observer
from workers.sending.sender import Sender

PUBLISH_EVERY = 5_000  # ms
SILENT = 3_600_000  # ms without news after which the line of another node is removed
MOST_COMPLAINTS = 20
MOST_TOPICS = 100  # paused topics whose numbers of messages being sent a line has
log = structlog.get_logger()


class _Since(msgspec.Struct):
    since: int | None = None


class _News(NamedTuple):
    """The parts of a line whose changes are published at once."""

    epochs: dict[int, str]
    version: str
    sending_paused: dict[str, int]
    broken: set[str]


class StatusLine:
    """Writes the node's line every 5 s, and at once after some changes. Belongs to the node's thread.

    A pause waits for the workers that have a line. So a worker sends only while Redis has confirmed its line in the last 15 s.
    The line of a killed node stays. The other nodes remove it an hour later.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        skew: Skew,
        clock: Clock,
        *,
        routes: Routes,
        senders: Mapping[str, Sender],
        policies: CurrentPolicies,
        lately: RecentCounters,
        complaints: Callable[[], Sequence[Complaint]] = tuple,
        observer: Observer = NO_OBSERVER,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._settings = settings
        self._skew = skew
        self._clock = clock
        self._routes = routes
        self._senders = senders
        self._complaints = complaints
        self._policies = policies
        self._published: _News | None = None
        self.refused = ""  # why Redis did not confirm the line
        self._known_since: int | None = None  # monotonic ms before the last write that Redis confirmed
        self._version = metadata.version("delayq")
        self._observer = observer
        self._recent = RecentLateness(observer.lateness)
        self.lately = lately
        self._connected = connected
        self._local = [one.name for one in routes.table if is_local(one, settings.redis_url)]
        self._started = clock.now()
        self._wrote = False
        self._twin_at: int | None = None  # when another worker was last found to write the line
        self._cursor = "0"

    def count(self) -> None:
        """Keep the current counts of lateness in the line."""
        self._recent.tick(self._clock.now() + self._skew.ms)

    def has_news(self, ownership: Ownership) -> bool:
        """Whether the line has a change that is published at once."""
        return self._published != self._news(ownership)

    def _news(self, ownership: Ownership) -> _News:
        return _News(
            epochs={queue: job.epoch for queue, job in ownership.jobs.items()},
            version=min((job.version for job in ownership.running), default=self._policies.current.version),
            sending_paused=_sum(
                [*(job.sending_paused for job in ownership.running), *map(self._given_up, self._senders.values())]
            ),
            broken={name for name, sender in self._senders.items() if sender.circuit.open},
        )

    def publish(self, ownership: Ownership) -> None:
        """Write the line; raises StoreError."""
        news, self._published = self._news(ownership), None  # until Redis confirms the line
        settings, asked_at = self._settings, self._clock.monotonic()
        delivered = self._counts()
        complaints = (*self._of_twin(), *self._complaints())[:MOST_COMPLAINTS]
        line = msgspec.json.encode(
            {
                "node": settings.node,
                "address": settings.address,
                "version": self._version,
                "since": self._started,
                # The time is Redis's, so that a node with a wrong clock does not look dead.
                "seen": self._clock.now() + self._skew.ms,
                "coordinator": "zookeeper" if settings.zookeeper else "local",
                "queues": {
                    str(queue): {"epoch": job.epoch, "since": ownership.since[queue]}
                    for queue, job in sorted(ownership.jobs.items())
                },
                "handed_over": ownership.handed_over,
                "policies": news.version,
                "held": news.sending_paused,
                "routes": [self._route(route, delivered.get(route.name)) for route in self._routes.table],
                "complaints": [one.text[:LONGEST_REASON] for one in complaints],
                "codes": [one.code for one in complaints],
                "recent": self._recent.slots(),
                "lately": self.lately.sum(),
                "skew": self._skew.ms,
                "connected": self._connected(),
                "longest_send": max((one.longest_send for one in self._senders.values()), default=0),
            }
        )
        try:
            before = self._store.run(commands.publish_node(self._store.keys, settings.node, line))
        except StoreError as error:
            self.refused = str(error)
            raise
        self.refused, self._known_since = "", asked_at
        self._look_for_twin(before, self._clock.monotonic())
        self._published = news

    def is_known(self) -> bool:
        """Whether Redis has confirmed the line lately, so that a pause waits for this worker; from any thread."""
        since = self._known_since
        return since is not None and self._clock.monotonic() - since < LINE_AGE

    def tidy(self) -> None:
        """Check one page of lines, and remove those of nodes that were killed long ago; raises StoreError."""
        self._cursor = self._store.run(commands.forget_silent(self._store.keys, self._cursor, SILENT))

    def _look_for_twin(self, before: bytes, now: int) -> None:
        """Detect that another worker with the same name has written the line."""
        try:
            since = msgspec.json.decode(before or b"{}", type=_Since).since
        except msgspec.MsgspecError:
            since = None
        if self._wrote and since is not None and since != self._started:
            if self._twin_at is None:
                log.error("same_name", node=self._settings.node)
            self._twin_at = now
        elif self._twin_at is not None and now - self._twin_at > LINE_AGE:
            self._twin_at = None
        self._wrote = True

    def _of_twin(self) -> Sequence[Complaint]:
        if self._twin_at is None:
            return ()
        text = f"another worker has the name {self._settings.node}, too: give each worker a DELAYQ_NODE of its own"
        return (Complaint(text, SAME_NAME),)

    def _given_up(self, sender: Sender) -> Mapping[str, int]:
        """The number of messages of each paused topic that a hung thread may still send."""
        pause = self._policies.current.pause
        return {topic: count for topic, count in sender.given_up.items() if pause(topic) is not None}

    def _counts(self) -> Mapping[str, int]:
        """The number of messages that this node has delivered by each route, without the routes of which it is unknown.

        Pulls count what they append, but not by which route: so it is known only if a single route is appended to.
        """
        appended, sent = self._observer.delivered()
        counts = {route.name: sent.get(route.name, 0) for route in self._routes.table}
        for name in self._local:
            if len(self._local) == 1:
                counts[name] += appended
            else:
                del counts[name]
        return counts

    def _route(self, route: Route, delivered: int | None) -> RouteLine:
        sender = self._senders.get(route.name)
        opened = sender.circuit.opened if sender is not None else None
        failed = sender.circuit.failed if sender is not None else None
        redis_now = self._clock.now() + self._skew.ms - self._clock.monotonic()
        return RouteLine(
            route.name,
            route.match,
            route.shown_target,
            OpenCircuit(redis_now + opened.since, redis_now + opened.probe_at, opened.reason[:LONGEST_REASON])
            if opened is not None
            else None,
            route.max_attempts or self._settings.max_attempts,
            FailedSend(redis_now + failed.at, failed.reason[:LONGEST_REASON]) if failed is not None else None,
            route.send_timeout or self._settings.send_timeout,
            route.name in self._local,
            route.streams if lies_here(route, self._settings.redis_url) else None,
            route.per_queue,
            delivered,
            route.unused,
        )

    def take_away(self) -> None:
        """Remove the line of a node that has stopped; raises StoreError."""
        self._store.run(commands.forget_node(self._store.keys, self._settings.node))


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add these counts by topic. The entry `*` has the sum of all topics beyond the largest 100."""
    found = Counter[str]()
    for one in counts:
        found.update(one)
    shown = dict(found.most_common(MOST_TOPICS))
    if rest := found.total() - sum(shown.values()):
        shown["*"] = rest
    return shown
