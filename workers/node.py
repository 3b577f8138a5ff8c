"""A node: one worker process. It claims its queues, runs a pull job for each, and stops in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from coordinator import Coordinator, LocalCoordinator
from delayq.clock import Clock, SystemClock
from delayq.config import Settings
from delayq.errors import LayoutMismatch, StoreError
from delayq.routes import Routes
from delayq.store import checks, commands
from delayq.store.commands import Meta, Retention
from delayq.store.keys import queue_keys
from delayq.store.store import Store
from delayq.targets import open_target
from workers.dispatch import Dispatch, Policy
from workers.forwarder import Forwarder, Report
from workers.janitor import Janitor
from workers.observer import Observer
from workers.pull_job import PullJob
from workers.retry import Backoff
from workers.topics import Topics
from workers.wakes import WakeListener

__all__ = ["Node"]

ROUND = 500
LINE_EVERY = 5_000
BACKLOGS_AT_ONCE = 6
DEFAULT_QUEUES = 16
log = structlog.get_logger()


class Node:
    """Runs until `stop`: `run` blocks and returns when everything has been let go."""

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, observer: Observer | None = None,
        coordinator: Callable[[Store, Meta, Clock], Coordinator] | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._observer = observer
        self._make_coordinator = coordinator or (
            lambda store, meta, clock: LocalCoordinator(store, meta.queues, meta.era, clock)
        )
        self.routes: Routes = settings.route_table()
        self.store = Store(settings.redis_url, timeout=settings.redis_timeout / 1000, connections=512)
        self.jobs: dict[int, PullJob] = {}
        self.ready = False
        self._forwarders: dict[str, Forwarder] = {}
        self._policy = Policy(
            window=settings.window, max_attempts=settings.max_attempts,
            backoff=Backoff(settings.retry_base, settings.retry_cap),
        )  # fmt: skip
        self._retention = Retention(window=settings.final_window, most=settings.final_most)
        self._turns = threading.BoundedSemaphore(BACKLOGS_AT_ONCE)
        self._condition = threading.Condition()
        self._stopping = False
        self._started = self._clock.now()
        self._line: bytes = b""
        self._line_at = 0

    def stop(self) -> None:
        """Ask `run` to let go of everything and return; safe from any thread and from a signal handler's thread."""
        self._stopping = True

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Own queues until stopped. Raises ConfigError or LayoutMismatch for what only people can mend."""
        topics = [Topics(self.routes, self.settings.redis_url)]
        local = topics[0].local
        for route in self.routes.table:
            if route.name not in local:
                self._forwarders[route.name] = Forwarder(
                    route, open_target(route, self.settings.redis_url), self._clock,
                    threads=self.settings.forwarders, timeout=self.settings.send_timeout, observer=self._observer,
                )  # fmt: skip
        meta: Meta | None = None
        try:
            meta = self._agree()
        finally:
            if meta is None:  # refused, or stopped before
                self._close_targets(list(self._forwarders.values()))
        if meta is None:
            return
        coordinator = self._make_coordinator(self.store, meta, self._clock)
        listener = WakeListener(self.store, meta.queues, self._wake)
        janitor = Janitor(self.store, meta.queues, self._clock)
        for forwarder in self._forwarders.values():
            forwarder.start()
        try:
            coordinator.start()
            listener.start()
            while not self._stopping:
                self._round(coordinator, janitor)
                self._wait(ROUND)
        finally:
            self._let_go(coordinator, listener)

    def _wait(self, timeout_ms: int) -> None:
        with self._condition:
            if not self._stopping:
                self._clock.wait(self._condition, timeout_ms)

    def _agree(self) -> Meta | None:
        """Wait for Redis, agree on the layout, and refuse what would lose messages; None if stopped before."""
        wanted = self.settings.queues
        said = ""
        while not self._stopping:
            try:
                meta = self.store.run(commands.layout(wanted or DEFAULT_QUEUES))
                checks.refuse(self.store.run(checks.server()))
            except StoreError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("waiting_for_redis", error=said)
                self._wait(200)
                continue
            if meta.version != commands.LAYOUT_VERSION or (wanted is not None and meta.queues != wanted):
                raise LayoutMismatch(
                    f"this Redis has {meta.queues} queues and layout version {meta.version}; this worker wants "
                    f"{wanted or meta.queues} and {commands.LAYOUT_VERSION}"
                )
            return meta
        return None

    def _round(self, coordinator: Coordinator, janitor: Janitor) -> None:
        """Start and stop pull jobs as the coordinator says; look after what hangs. Survives every exception."""
        try:
            for forwarder in self._forwarders.values():
                forwarder.give_up_hung()
            self._end_jobs(coordinator)
            self._start_jobs(coordinator)
            self.ready = True
            janitor.tick()
            self._publish_line()  # last: a full Redis refuses it
        except StoreError as error:
            log.warning("redis_trouble", error=str(error))
        except Exception:
            log.exception("round_failed")

    def _end_jobs(self, coordinator: Coordinator) -> None:
        assigned = coordinator.assigned()
        for queue, job in list(self.jobs.items()):
            if queue not in assigned:
                job.stop()
            if job.alive:
                continue
            del self.jobs[queue]
            if job.fenced:
                coordinator.fenced(queue, job.epoch)
            coordinator.release(queue, job.epoch)

    def _start_jobs(self, coordinator: Coordinator) -> None:
        for queue in sorted(coordinator.assigned() - self.jobs.keys()):
            claim = coordinator.claim(queue)
            if claim is None:
                continue
            job = PullJob(
                queue_keys(queue), claim.epoch, claim.parked, store=self.store,
                topics=Topics(self.routes, self.settings.redis_url), dispatch=self._dispatch, clock=self._clock,
                policy=self._policy, retention=self._retention, turns=self._turns, observer=self._observer,
            )  # fmt: skip
            self.jobs[queue] = job
            job.start()
            log.info("owner", queue=queue, epoch=claim.epoch)

    def _dispatch(self, report: Report) -> Dispatch:
        return Dispatch(self.routes, self._forwarders, self._policy, report)

    def _wake(self, queue: int, due: int | None) -> None:
        job = self.jobs.get(queue)
        if job is not None:
            job.wake(due)

    def _publish_line(self) -> None:
        line = msgspec.json.encode({
            "node": self.settings.node, "since": self._started, "seen": self._clock.now(),
            "queues": {str(queue): job.epoch for queue, job in sorted(self.jobs.items())},
        })  # fmt: skip
        now = self._clock.monotonic()
        if now - self._line_at >= LINE_EVERY or not self._line_at:
            self._line_at = now
            self.store.run(commands.publish_node(self.settings.node, line))

    # -- stopping ----------------------------------------------------------------------------------------------------

    def _let_go(self, coordinator: Coordinator, listener: WakeListener) -> None:
        self.ready = False
        end = self._clock.monotonic() + self.settings.drain_timeout
        # 1. Pull no more: every job stops at once, so that none waits for another's sends.
        for job in self.jobs.values():
            job.stop()
        # 2. Let sends finish and settle them, so that a planned stop makes no duplicates.
        while self._clock.monotonic() < end and any(job.alive for job in self.jobs.values()):
            for forwarder in self._forwarders.values():
                forwarder.give_up_hung()
            for job in self.jobs.values():
                job.join(20)
        # 3. Release the queues, so that a successor can start.
        for queue, job in self.jobs.items():
            coordinator.release(queue, job.epoch)
        # 4. Close the targets: nothing sends any more (what hangs is left behind with the process).
        self._close_targets(list(self._forwarders.values()))
        # 5. Leave the coordinator, stop listening, take the node's line away.
        coordinator.stop()
        listener.stop()
        try:
            self.store.run(commands.forget_node(self.settings.node))
        except StoreError as error:
            log.warning("redis_trouble", error=str(error))
        listener.join(2_000)
        self.store.close()

    def _close_targets(self, forwarders: Sequence[Forwarder]) -> None:
        for forwarder in forwarders:
            forwarder.stop()
        for forwarder in forwarders:
            forwarder.join(500)
            try:
                forwarder.target.close()
            except Exception:
                log.exception("close_failed", route=forwarder.route.name)

    @property
    def forwarders(self) -> Mapping[str, Forwarder]:
        """The forwarders by route name, for health and metrics."""
        return self._forwarders
