"""What a node says of itself in Redis, for `GET /v1/nodes` and `delayq nodes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import msgspec
import structlog

from delayq.clock import Clock
from delayq.config import Settings
from delayq.nodes import LINE_AGE, LONGEST_REASON, SAME_NAME, FailedSend, OpenCircuit, RouteLine
from delayq.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.store import Store
from delayq.targets.redis_stream.target import is_local, lies_here
from workers.node.duties.lately import LatelyCounts
from workers.node.duties.recent import RecentCounts
from workers.node.duties.redis_clock import Skew
from workers.node.ownership import Ownership
from workers.queue.tenure import Book
from workers.sending.forwarder import Forwarder

__all__ = ["StatusLine"]

EVERY = 5_000  # ms
SILENT = 3_600_000  # ms after which the line of another node is removed
MOST_COMPLAINTS = 20
MOST_TOPICS = 100  # of which a line tells what is held
log = structlog.get_logger()
TIDY = 60_000  # ms between two looks for such lines, at a page of them


class _Since(msgspec.Struct):
    since: int | None = None


class StatusLine:
    """Published every 5 s, and at once when a queue came or went, a circuit opened or closed, or the policies are others. Belongs
    to the node's thread.

    A node that was killed takes its line not away, so the others do, an hour later.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        skew: Skew,
        clock: Clock,
        *,
        routes: Routes,
        forwarders: Mapping[str, Forwarder],
        book: Book,
        complaints: Callable[[], Sequence[str]] = tuple,
        recent: RecentCounts | None = None,
        lately: LatelyCounts | None = None,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._settings = settings
        self._skew = skew
        self._clock = clock
        self._routes = routes
        self._forwarders = forwarders
        self._complaints = complaints
        self._book = book
        self._said: tuple[str, dict[str, int], set[str]] = "", {}, set()
        self._version = metadata.version("delayq")
        self._recent = recent
        self._lately = lately
        self._connected = connected
        self._started = clock.now()
        self._published_at: int | None = None
        self._wrote = False
        self._twin_at: int | None = None  # when another one was seen to write the line
        self._tidy_at = clock.monotonic()
        self._cursor = "0"

    @property
    def told(self) -> bool:
        """Whether it was published, or tried to be."""
        return self._published_at is not None

    def publish(self, ownership: Ownership, changed: bool) -> None:
        """Say it, if it is time or something `changed`; raises StoreError."""
        now = self._clock.monotonic()
        version = min((job.version for job in ownership.running), default=self._book.current.version)
        held = _sum(
            [*(job.sending_paused for job in ownership.running), *map(self._given_up, self._forwarders.values())]
        )
        broken = {name for name, forwarder in self._forwarders.items() if forwarder.circuit.open}
        changed = changed or self._said != (version, held, broken)
        if self._recent is not None:
            self._recent.tick(self._clock.now() + self._skew.ms)
        if self._lately is not None:
            self._lately.tick()
        if not changed and self._published_at is not None and now - self._published_at < EVERY:
            return
        self._published_at = now
        settings = self._settings
        line = msgspec.json.encode(
            {
                "node": settings.node,
                "address": settings.address,
                "version": self._version,
                "since": self._started,
                "seen": self._clock.now() + self._skew.ms,  # or others would hold a node with a wrong clock for dead
                "coordinator": "zookeeper" if settings.zookeeper else "local",
                "queues": {
                    str(queue): {"epoch": job.epoch, "since": ownership.since[queue]}
                    for queue, job in sorted(ownership.jobs.items())
                },
                "handed_over": ownership.handed_over,
                "policies": version,
                "held": held,
                "routes": [self._route(route) for route in self._routes.table],
                "complaints": [
                    text[:LONGEST_REASON] for text in (*self._of_twin(), *self._complaints())[:MOST_COMPLAINTS]
                ],
                "recent": self._recent.told() if self._recent is not None else None,
                "lately": self._lately.sum() if self._lately is not None else None,
                "skew": self._skew.ms,
                "connected": self._connected(),
            }
        )
        wanted: list[Command[Any]] = [commands.node_line(settings.node), commands.publish_node(settings.node, line)]
        before, _ = self._store.run_all(wanted)
        self._look_for_twin(before, now)
        self._said = version, held, broken
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY
            self._cursor = self._store.run(commands.forget_silent(self._cursor, SILENT))

    def _look_for_twin(self, before: bytes | None, now: int) -> None:
        """See whether somebody else has written the line since this node did: two workers with one name."""
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

    def _of_twin(self) -> Sequence[str]:
        if self._twin_at is None:
            return ()
        return (f"{SAME_NAME} {self._settings.node}, too: give each worker a DELAYQ_NODE of its own",)

    def _given_up(self, forwarder: Forwarder) -> Mapping[str, int]:
        """What of paused topics it may send yet, in threads that hang."""
        pause = self._book.current.pause
        return {topic: count for topic, count in forwarder.given_up.items() if pause(topic) is not None}

    def _route(self, route: Route) -> RouteLine:
        forwarder = self._forwarders.get(route.name)
        opened = forwarder.circuit.opened if forwarder is not None else None
        failed = forwarder.circuit.failed if forwarder is not None else None
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
            is_local(route, self._settings.redis_url),
            route.stream if lies_here(route, self._settings.redis_url) else None,
            route.per_queue,
        )

    def take_away(self) -> None:
        """The node has stopped; raises StoreError."""
        self._store.run(commands.forget_node(self._settings.node))


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """By topic, of all jobs; what is beyond so many topics is told as one."""
    found = Counter[str]()
    for one in counts:
        found.update(one)
    told = dict(found.most_common(MOST_TOPICS))
    if rest := found.total() - sum(told.values()):
        told["*"] = rest
    return told
