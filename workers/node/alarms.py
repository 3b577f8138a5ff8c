"""Looks now and then whether Redis can still be trusted, and whether all messages are accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import structlog

from delayq.care.audit import Audit
from delayq.clock import Clock
from delayq.store import checks, commands
from delayq.store.commands import QueueStats
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys
from delayq.targets.redis_stream.backlog import backlogs
from workers.node.rewriting import Rewriting

__all__ = ["Alarms"]

EVERY = 30_000  # ms between two looks
SOON = 2_000  # while there is trouble, or Redis rewrites what it could not write
MOST_STREAMS = 256  # at a look
log = structlog.get_logger()


class Alarms:
    """`tick` is called by the node's thread. What is wrong is logged once when it begins and once when it is over.

    `streams` tells of which streams the backlog is wanted: their keys, and the route of each. `fsync` is DELAYQ_FSYNC.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[int],
        clock: Clock,
        streams: Callable[[], Mapping[str, str]] = dict,
        fsync: str = "",
    ) -> None:
        self._store = store
        self.queues = queues
        self._clock = clock
        self._streams = streams
        self._fsync = fsync
        self._audit = Audit()
        self._rewriting = Rewriting(store)
        self._next = self._looked_at = clock.monotonic()
        self.alarms: dict[str, str] = {}
        self.stats: Sequence[QueueStats] = ()
        self.server: checks.ServerSettings | None = None
        self.missing = 0
        self.parked = 0
        self.backlogs: dict[str, int] = {}  # of the fullest stream of each route

    def hurry(self) -> None:
        """Look soon: there was trouble with Redis, which may have left something."""
        self._next = min(self._next, self._looked_at + SOON)

    def tick(self) -> None:
        """Look, if it is time; raises StoreError."""
        if self._clock.monotonic() < self._next:
            return
        self._looked_at = self._clock.monotonic()
        self._next = self._looked_at + EVERY
        self.server = checks.told(self._store.run_many(checks.questions(self._fsync)))
        if self._rewriting.look(self.server.disks):
            self._next = self._looked_at + SOON
        complaints = checks.complaints(self.server, fsync=self._fsync)
        if self._rewriting.refused:
            complaints.append(
                f"Redis does not let this worker ask for the rewrite ({self._rewriting.refused}): run BGREWRITEAOF, and "
                "give its user +bgrewriteaof"
            )
        stats = self.stats = self._store.run_all(commands.stats(queue_keys(queue)) for queue in self.queues)
        self.parked = sum(one.parked for one in stats)
        self._look_at_streams()
        found = self._audit.look(stats)
        self.missing = found.missing
        self._tell({text: text for text in complaints} | found.lost)

    def _look_at_streams(self) -> None:
        routes = dict(islice(self._streams().items(), MOST_STREAMS))
        fullest: dict[str, int] = {}
        for stream, backlog in backlogs(self._store, list(routes)).items():
            fullest[routes[stream]] = max(backlog, fullest.get(routes[stream], 0))
        self.backlogs = fullest

    def _tell(self, alarms: dict[str, str]) -> None:
        for about, text in alarms.items():
            if about not in self.alarms:
                log.error("alarm", text=text)
        for about, text in self.alarms.items():
            if about not in alarms:
                log.warning("alarm_over", text=text)
        self.alarms = alarms
