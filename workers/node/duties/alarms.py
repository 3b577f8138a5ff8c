"""Raises alarms: Redis no longer keeps messages safely, or messages are missing.

If Redis could not write its append-only file for a while, Redis may not be able to load that file. So the worker asks for a
rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice

import structlog

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.care.accounts import GONE, Accounts
from delayq.client.findings.facts import MOST_HELD
from delayq.domain.nodes import Complaint
from delayq.store import checks, commands
from delayq.store.checks import Disk
from delayq.store.commands import QueueStats
from delayq.store.connect.store import Store
from delayq.store.keys import ParkedSet
from delayq.store.rights import WORKER
from delayq.targets.redis_stream.backlog import backlogs

CALM = 15  # looks without a new error, after which failed snapshots refuse no change: half a minute
MOST_STREAMS = 256  # streams whose backlog one check reads
log = structlog.get_logger()


class Rewriting:
    """Asks for a rewrite of the append-only file after writes to it have failed.

    A rewrite counts only if it began after the last failure and nothing failed during it. So the number of errors is kept
    before the rewrite begins. Its success is written into Redis for all workers.

    While a server refuses changes because of its snapshots, each refusal counts as an error, and a rewrite helps nothing. So
    a rewrite begins once there are no more errors.
    """

    def __init__(self, store: Store) -> None:
        self.refused = ""  # the reason, if Redis denies this worker the rewrite
        self._store = store
        self._noted: dict[str, Disk] = {}  # by run id
        self._calm: dict[str, tuple[int, int]] = {}  # by run id: the errors, and the looks since they were fewer

    def look(self, disks: Sequence[Disk]) -> None:
        """Ask for rewrites if they are needed; raises StoreUnavailable."""
        suspect = [disk for disk in disks if disk.suspect and not disk.failing]
        self._noted = {disk.run_id: self._noted[disk.run_id] for disk in suspect if disk.run_id in self._noted}
        if not suspect:
            self.refused = ""
        self._calm = {disk.run_id: self._looks(disk) for disk in suspect}
        for disk in suspect:
            noted = self._noted.get(disk.run_id)
            if disk.rewriting or (disk.refuses_for_snapshots and self._calm[disk.run_id][1] < CALM):
                continue
            if noted is not None and disk.errors == noted.errors and disk.rewrites > noted.rewrites and disk.rewritten:
                self._write_down(disk, disks)
            else:
                self._noted[disk.run_id] = disk
                self._ask()

    def _looks(self, disk: Disk) -> tuple[int, int]:
        errors, looks = self._calm.get(disk.run_id, (disk.errors, 0))
        return disk.errors, looks + 1 if disk.errors == errors else 0

    def _ask(self) -> None:
        try:
            self._store.run(commands.rewrite())
            self.refused = ""
            log.warning("rewriting")
        except StoreUnavailable:
            raise
        except StoreError as error:
            # The worker has no right, or another worker was faster: the next check shows the result.
            self.refused = "" if "in progress" in str(error) else str(error)

    def _write_down(self, disk: Disk, disks: Sequence[Disk]) -> None:
        known = self._store.run(commands.rewritten(self._store.keys))
        gone = [run_id for run_id in known if run_id not in [one.run_id for one in disks]]
        self._store.run_all(commands.tell_rewritten(self._store.keys, disk.run_id, disk.errors, gone))


class Alarms:
    """Belongs to the node's thread. Each alarm is logged at its begin and at its end.

    `streams` returns the route of each stream whose backlog is read, by key. `fsync` and `accept` are DELAYQ_FSYNC and
    DELAYQ_ACCEPT.
    """

    def __init__(
        self,
        store: Store,
        queues: Sequence[int],
        streams: Callable[[], Mapping[str, str]] = dict,
        fsync: str = "",
        accept: Collection[str] = (),
    ) -> None:
        self._store = store
        self.queues = queues
        self._streams = streams
        self._fsync = fsync
        self._accept = accept
        self._accounts = Accounts()
        self._rewriting = Rewriting(store)
        self._complaints: list[str] = []
        self._lost: dict[str, str] = {}
        self.current: dict[str, str] = {}
        #: The alarms that only this worker can raise. The others can be read from Redis.
        self.own: list[Complaint] = []
        self.stats: Sequence[QueueStats] = ()
        self.server: checks.ServerSettings | None = None
        self.missing = 0
        self.parked = 0
        self.held: dict[str, int] = {}  # by topic, the number of messages that a pause or a limit holds
        self.backlogs: dict[str, int] = {}  # by route, of its fullest stream

    def look_at_server(self) -> None:
        """Compare the server's settings and its disk with the needs of delayq; raises StoreError."""
        self.server = checks.told(self._store.run_many(checks.questions(self._store.keys, self._fsync, WORKER)))
        self._rewriting.look(self.server.disks)
        self._complaints = checks.complaints(self.server, fsync=self._fsync, accept=self._accept)
        self._publish()

    def look_at_queues(self) -> None:
        """Read the figures of all queues, and compare the messages with the counters; raises StoreError."""
        stats = self.stats = self._store.run_all(
            commands.stats(self._store.keys.queue(queue), most_held=MOST_HELD) for queue in self.queues
        )
        self.parked = sum(one.parked for one in stats)
        self._look_at_held(stats)
        self._look_at_streams()
        found = self._accounts.look(stats)
        self.missing, self._lost = found.missing, found.lost
        self._publish()

    def _publish(self) -> None:
        own = []
        if reason := self._rewriting.refused:
            text = f"Redis does not let this worker ask for the rewrite ({reason})"
            own = [Complaint(f"{text}: run BGREWRITEAOF, and give its user +bgrewriteaof", "DelayqRedisRewriteNeeded")]
        self._log({text: text for text in (*self._complaints, *(one.text for one in own))} | self._lost)
        self.own = own + [Complaint(text, "DelayqAlarm") for about, text in self._lost.items() if about == GONE]

    def _look_at_held(self, stats: Sequence[QueueStats]) -> None:
        sets = [(one.queue, topic) for one in stats for topic in one.held_topics][:MOST_HELD]
        counts = self._store.run_all(
            commands.count_parked(self._store.keys.queue(queue), ParkedSet.of_topic(topic)) for queue, topic in sets
        )
        held: dict[str, int] = {}
        for (_, topic), count in zip(sets, counts, strict=True):
            held[topic] = held.get(topic, 0) + count
        self.held = held

    def _look_at_streams(self) -> None:
        routes = dict(islice(self._streams().items(), MOST_STREAMS))
        fullest: dict[str, int] = {}
        for stream, backlog in backlogs(self._store, list(routes)).items():
            fullest[routes[stream]] = max(backlog, fullest.get(routes[stream], 0))
        self.backlogs = fullest

    def _log(self, alarms: dict[str, str]) -> None:
        for about, text in alarms.items():
            if about not in self.current:
                log.error("alarm", text=text)
        for about, text in self.current.items():
            if about not in alarms:
                log.warning("alarm_over", text=text)
        self.current = alarms
