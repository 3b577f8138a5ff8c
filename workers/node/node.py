"""A node: one worker process. It claims its queues, runs a pull job for each, and stops in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from coordinator import Claim, Coordinator, CoordinatorError, CoordinatorRefused, coordinator_for
from delayq.base.clock import AdvancedClock, Clock, SystemClock
from delayq.base.errors import ConfigError, StoreError
from delayq.client.session import DEFAULT_QUEUES, check_layouts
from delayq.config import Settings, variable
from delayq.domain.nodes import Complaint, Lately
from delayq.domain.routes import Route, Routes
from delayq.store import checks, commands
from delayq.store.commands import Meta, Retention
from delayq.store.connect.store import Store
from delayq.store.keys import Keys
from delayq.store.rights import WORKER
from delayq.targets import Target, open_target
from delayq.targets.redis_stream.target import RedisStreamTarget, is_local, lies_here
from delayq.targets.webhook.egress import Egress
from workers.limits.asking import NodeLimits
from workers.node.duties.alarms import Alarms
from workers.node.duties.follow_time import TimeFollower
from workers.node.duties.janitor import Janitor
from workers.node.duties.layouts import LayoutWatch, numbers_of
from workers.node.duties.policies import PolicyWatch
from workers.node.duties.recent import RecentCounters
from workers.node.duties.redis_clock import RedisClock, Skew
from workers.node.duties.status_line import PUBLISH_EVERY, StatusLine
from workers.node.duties.timers import Timer, run_timers
from workers.node.duties.trimming import StreamTrimmer
from workers.node.ownership import SHORT_ROUND, Ownership
from workers.node.wakes import WakeListener
from workers.queue.pull_job import PullJob
from workers.queue.puller import Pullers
from workers.queue.queue_context import Bounds, CurrentPolicies, Incarnation, Pace, QueueContext
from workers.queue.symptoms import LossDetector
from workers.queue.topics import Topics
from workers.sending.backoff import Backoff
from workers.sending.observer import NO_OBSERVER, Observer
from workers.sending.sender import Sender
from workers.sending.stall_detector import StallDetector

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from workers.sending.spans import Spans

T = TypeVar("T")

ROUND = 500  # ms, also between two attempts to reach Redis or the coordinator at the start
SECOND, MINUTE = 1_000, 60_000  # ms
log = structlog.get_logger()


def _check(settings: Settings) -> None:
    """Raise ConfigError for settings without an effect, and for mistakes that would be found only later."""
    if settings.zookeeper:
        from coordinator.zookeeper.access import access_of

        access_of(settings)
    for name, value in vars(settings).items():
        if name.startswith("zookeeper_") and name != "zookeeper_root" and value and not settings.zookeeper:
            raise ConfigError(f"{variable(name)} does nothing without DELAYQ_ZOOKEEPER: set that, or leave this out")
    try:
        Egress(settings.egress_allow.replace(",", " ").split())
    except ValueError as error:
        raise ConfigError(f"{variable('egress_allow')}: {error}") from None


def _spans(provider: TracerProvider | None, clock: Clock) -> Spans | None:
    if provider is None:
        return None
    from workers.sending.spans import Spans  # imports a package that only traces need

    return Spans(provider, clock)


class Node:
    """Runs until `stop`: `run` blocks, and returns after all queues were given back."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        observer: Observer = NO_OBSERVER,
        coordinator: Callable[[Store, Meta, Clock], Coordinator] | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._observer = observer
        self._spans = _spans(tracer_provider, self._clock)
        self._make_coordinator = coordinator or partial(coordinator_for, settings)
        self.routes: Routes = settings.route_table()
        _check(settings)
        keys, timeout = Keys(settings.namespace), settings.redis_timeout / 1000
        self.store = Store(settings.redis_url, keys=keys, timeout=timeout, connections=512)
        self._queues: list[int] = []  # of all layouts: the duties share this list, which changes in place
        self.skew = Skew(self._clock)
        self.redis_clock = RedisClock(self.store, self.skew, self._clock)
        self.policies = CurrentPolicies(self._look_now)
        self._pace = Pace(self._clock)
        self._limits = NodeLimits(self.store, self._clock, self.policies.report_version)
        self.losses = LossDetector()
        self.policy_watch = PolicyWatch(
            self.store, self._queues, self.policies, self.losses, self._redis_now, self.routes, self._look_at_all
        )
        self.trimmer = StreamTrimmer(
            self.store, self._queues, self.policies, self.routes, settings.redis_url, lambda: self.jobs, self._redis_now
        )
        self._janitor = Janitor(self.store, self._queues, settings.audit_window)
        self.ready = False
        self.alarms = Alarms(self.store, self._queues, self._streams, fsync=settings.fsync, accept=settings.accept)
        self.ownership: Ownership | None = None
        self.coordinator: Coordinator | None = None
        self._senders: dict[str, Sender] = {}
        self.line = StatusLine(
            self.store,
            settings,
            self.skew,
            self._clock,
            routes=self.routes,
            senders=self._senders,
            complaints=self.own_complaints,
            policies=self.policies,
            observer=observer,
            lately=RecentCounters(self._counted),
            connected=lambda: self.coordinator is None or self.coordinator.connected,
        )
        self._bounds = Bounds(
            window=settings.window,
            max_attempts=settings.max_attempts,
            backoff=Backoff(settings.retry_base, settings.retry_cap),
            stuck_after=settings.stuck_after,
        )
        self._retention = Retention(window=settings.final_window, most=settings.final_most)
        self._stalls: StallDetector | None = None
        self._pullers = Pullers(self.store, self._clock)
        self._follower: TimeFollower | None = None  # on a development server only
        self._condition = threading.Condition()
        self._stopping = False
        self._look = False
        self.takes_part = False  # whether it may own queues, which it has to give back

    def stop(self) -> None:
        """Ask `run` to give all queues back and return; from any thread."""
        self._stopping = True
        self._look_now()

    @property
    def jobs(self) -> Mapping[int, PullJob]:
        """The pull jobs by queue, for health and metrics."""
        return self.ownership.jobs if self.ownership is not None else {}

    def complaints(self) -> list[str]:
        """The troubles of this node and of Redis, in sentences; empty if all is well."""
        own = [one.text for one in self.own_complaints()]
        return list(dict.fromkeys([*own, *self.alarms.current.values()]))

    def own_complaints(self) -> list[Complaint]:
        """The complaints that only this node can report. The others can be read from Redis."""
        found = []
        if not self.ready:
            text = "this worker does not take part: it starts, stops, or waits for Redis or ZooKeeper"
            found.append(Complaint(text, "DelayqZooKeeperLost"))
        if not self.redis_clock.answers:
            found.append(Complaint("Redis does not answer", "DelayqRedisDown"))
        elif self.line.refused:
            found.append(Complaint(f"Redis refuses the line of this worker, so it sends nothing: {self.line.refused}"))
        if self.skew.complaint is not None:
            found.append(Complaint(self.skew.complaint, "DelayqClockSkew"))
        for queue, job in sorted(self.jobs.items()):
            if not job.alive and not job.finished:
                found.append(Complaint(f"queue {queue}: the thread that pulls it has ended"))
            if job.stuck:
                found.append(Complaint(f"queue {queue} is stuck: it hands out messages, and none is confirmed"))
            if job.pulls_fail is not None and self.redis_clock.answers:
                text = f"queue {queue}: nothing can be pulled: {job.pulls_fail}"
                found.append(Complaint(text, "DelayqQueueNotPulled"))
        return found + self.alarms.own

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Own queues until stopped. Raises ConfigError, LayoutMismatch or CoordinatorRefused, which somebody has to correct."""
        remote = [route for route in self.routes.table if not is_local(route, self.settings.redis_url)]
        if remote:  # else no message is in memory during a send
            still = self._clock.machine if isinstance(self._clock, AdvancedClock) else self._clock
            self._stalls = StallDetector(still, self.settings.session_timeout // 3)
        for route in remote:
            self._senders[route.name] = Sender(
                route,
                self._open_target(route),
                self._clock,
                threads=self.settings.senders,
                timeout=self.settings.send_timeout,
                observer=self._observer,
                on_circuit=self._look_now,  # so that the node's line is published at once
                stalls=self._stalls,
                spans=self._spans,
                may_send=self.line.is_known,
                note=self.trimmer.note if lies_here(route, self.settings.redis_url) else None,
            )
        meta: Meta | None = None
        try:
            meta = self._agree()
        finally:
            if meta is None:  # Redis is not suitable, or the node was stopped
                self._close_targets(list(self._senders.values()))
        if meta is None:
            return
        self._queues[:] = numbers_of(meta.layouts)
        coordinator = self.coordinator = self._make_coordinator(self.store, meta, self._clock)
        coordinator.watch(self._look_now)
        ownership = self.ownership = Ownership(
            coordinator, self._make_job, self._pullers.add, self._clock, drain=self.settings.drain_timeout
        )
        if isinstance(self._clock, AdvancedClock):
            self._follower = TimeFollower(self.store, self._clock, self.settings.node, self._look_now, ownership)
        moved = self._follower.note if self._follower is not None else None
        listener = WakeListener(self.store, self._queues, self._wake, moved)
        duties = self._duties(meta, coordinator, ownership, listener)
        for sender in self._senders.values():
            sender.start()
        try:
            if self._stalls is not None:
                self._stalls.start()
            listener.start()
            if self._join(coordinator):
                self.takes_part = True
                while not self._stopping:
                    run_timers(duties)
                    self._wait(SHORT_ROUND if ownership.ending or self._lags or self._follows else ROUND)
        finally:
            self._let_go(coordinator, ownership, listener)

    def _duties(
        self, meta: Meta, coordinator: Coordinator, ownership: Ownership, listener: WakeListener
    ) -> Sequence[Timer]:
        """The timers of the node's duties, in their order."""
        line, every = self.line, partial(Timer, self._clock)

        def share(queues: Sequence[int]) -> None:
            self._queues[:] = queues
            coordinator.share(queues)
            listener.listen(queues)

        layouts = LayoutWatch(self.store, meta.layouts, self._retention, share)

        def glance() -> None:
            if (seen := self.redis_clock.glance()) is not None:
                layouts.take(seen.layouts)
                self.policy_watch.observe(seen.policies)

        publish = every(PUBLISH_EVERY, partial(self._publish, ownership), sooner=partial(line.has_news, ownership))
        duties = [
            every(0, self._give_up_hung),
            every(0, self._limits.start_again),
            every(SECOND, glance),  # so that policies apply within 2 s even if the client that set them has died
            every(2 * SECOND, self.policy_watch.look, sooner=self.policy_watch.has_news),
            publish,  # before the first pull, because a pause asks only nodes that have a line
            every(0, partial(self._own, coordinator, ownership)),
            publish,  # the queues that came and went just now, before duties that may wait for a server that hangs
            every(10 * SECOND, layouts.retire, first=10 * SECOND),
            every(2 * SECOND, self.alarms.look_at_server),  # a shorter failure may go unnoticed
            every(30 * SECOND, self.alarms.look_at_queues),
            every(MINUTE, self._janitor.look, first=MINUTE),
            every(0, self._janitor.go_on),
            every(60 * MINUTE, self._janitor.trim, first=60 * MINUTE),
            every(MINUTE, self.trimmer.begin, sooner=self.trimmer.has_news),
            every(0, self.trimmer.go_on),
            every(SECOND, line.count),
            every(MINUTE, line.tidy),
            every(MINUTE, line.lately.tick, first=MINUTE),
        ]
        if (follower := self._follower) is None:
            return duties
        last = [every(SECOND, follower.look), every(0, follower.confirm)]  # the message of a move may be lost
        return [every(0, follower.follow), *duties, *last]

    def _counted(self) -> Lately:
        """The counters since the node began."""
        return Lately(
            self._observer.failures, self.losses.went_back, self.ownership.claims if self.ownership is not None else 0
        )

    @property
    def _lags(self) -> bool:
        """Whether a pull job has older policies than the node. Then the next round comes soon."""
        return any(job.version != self.policies.current.version for job in self.jobs.values())

    @property
    def _follows(self) -> bool:
        """Whether this node has yet to follow the time of a development server."""
        return self._follower is not None and self._follower.is_behind

    def _look_now(self) -> None:
        with self._condition:
            self._look = True
            self._condition.notify_all()

    def _wait(self, timeout_ms: int) -> None:
        with self._condition:
            if not self._stopping and not self._look:
                self._clock.wait(self._condition, timeout_ms)
            self._look = False

    def _agree(self) -> Meta | None:
        """Wait for Redis, agree on the layout, and refuse a Redis that would lose messages; None if stopped before."""
        wanted = self.settings.queues

        def agree() -> Meta:
            server = checks.told(self.store.run_many(checks.questions(self.store.keys, self.settings.fsync, WORKER)))
            checks.refuse(server, self.settings.accept)
            return self.store.run(commands.layout(self.store.keys, wanted or DEFAULT_QUEUES))

        meta = self._repeat(agree, lambda error: log.warning("waiting_for_redis", error=error))
        if meta is not None:
            check_layouts(meta, wanted)
            self.store.follow_time(development=meta.advanced is not None)
        return meta

    def _join(self, coordinator: Coordinator) -> bool:
        """Join as soon as the coordinator answers; False if stopped before. Raises CoordinatorRefused."""

        def join() -> bool:
            coordinator.start()
            return True

        return self._repeat(join, lambda error: log.warning("waiting_for_coordinator", error=error)) or False

    def _repeat(self, attempt: Callable[[], T], waits: Callable[[str], None]) -> T | None:
        """Repeat an attempt until it succeeds; None if the node was stopped before. `waits` logs each new error."""
        logged, refused = "", False
        while not self._stopping:
            try:
                return attempt()
            except (StoreError, CoordinatorError) as error:
                if refused and isinstance(error, CoordinatorRefused):
                    raise  # one refusal may be the answer of a server that stops
                refused = isinstance(error, CoordinatorRefused)
                if str(error) != logged:
                    logged = str(error)
                    waits(logged)
            self._wait(ROUND)
        return None

    def _own(self, coordinator: Coordinator, ownership: Ownership) -> None:
        """Start and stop pull jobs as the coordinator decides; raises CoordinatorError and StoreError.

        A worker that may not send leaves its queues to other workers, and claims none until it may send.
        """
        if self._follower is not None and self._follower.is_ahead_of_jobs:
            return
        may_send = self._may_send()
        coordinator.redis_reachable(self.redis_clock.answers and may_send, behind=self.skew.behind)
        if may_send or self.ready:
            ownership.adjust(reachable=self.redis_clock.reachable)
            self.ready = True

    def _may_send(self) -> bool:
        """Whether a pause waits for this worker, or need not: Redis itself refuses pulls if all messages go into its streams."""
        return not self._senders or self.line.is_known()

    def _publish(self, ownership: Ownership) -> None:
        if self.redis_clock.answers:
            try:
                self.line.publish(ownership)
            except StoreError as error:
                log.warning("redis_trouble", error=str(error))

    def _redis_now(self) -> int:
        return self._clock.now() + self.skew.ms

    def _streams(self) -> Mapping[str, str]:
        return {stream: route for job in self.jobs.values() for stream, route in job.streams.items()}

    def _make_job(self, claim: Claim) -> PullJob:
        context = QueueContext(
            keys=self.store.keys.queue(claim.queue),
            incarnation=Incarnation(claim.epoch),
            store=self.store,
            clock=self._clock,
            bounds=self._bounds,
            retention=self._retention,
            routes=self.routes,
            senders=self._senders,
            observer=self._observer,
            spans=self._spans,
            policies=self.policies,
            limits=self._limits,
            pace=self._pace,
            may_send=self._may_send,
        )
        topics = Topics(self.routes, self.settings.redis_url, self.store.keys, self.trimmer.note)
        return PullJob(context, claim.parked, topics, stalls=self._stalls, losses=self.losses)

    def _look_at_all(self) -> None:
        for job in self.jobs.values():
            job.wake(None)

    def _wake(self, queue: int, due: int | None) -> None:
        job = self.jobs.get(queue)
        if job is not None:
            job.wake(due)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def _let_go(self, coordinator: Coordinator, ownership: Ownership, listener: WakeListener) -> None:
        self.ready = False
        # 1. Stop all jobs at once, so that no message is pulled any longer.
        # 2. Let sends finish and settle them, so that a planned stop causes no duplicates.
        # 3. Give each queue back as soon as its job has ended, so that its next owner can start.
        publish = Timer(self._clock, PUBLISH_EVERY, partial(self._publish, ownership))

        def meanwhile() -> None:
            self._give_up_hung()
            publish.run()

        ownership.let_go(meanwhile)
        # 4. Close the targets. Only threads that hang may still send, and they end with the process. The pullers settle the
        #    last sends, and end.
        self._close_targets(list(self._senders.values()))
        self._pullers.stop()
        # 5. Leave the coordinator, end the subscription, remove the node's line. While a send hangs the line stays, so that a
        #    pause waits until no message can arrive.
        coordinator.stop()
        listener.stop()
        if not any(sender.busy or sender.given_up for sender in self._senders.values()):
            try:
                self.line.take_away()
            except StoreError as error:
                log.warning("redis_trouble", error=str(error))
        if self._stalls is not None:
            self._stalls.stop()
            self._stalls.join(2_000)
        self._limits.stop(2_000)
        listener.join(2_000)
        self._pullers.join(2_000)
        self.store.close()

    def _give_up_hung(self) -> None:
        for sender in self._senders.values():
            sender.give_up_hung()

    def _open_target(self, route: Route) -> Target:
        target = open_target(route, self.settings.redis_url)
        if isinstance(target, RedisStreamTarget):
            target.within(self.store.keys)
        return target

    def _close_targets(self, senders: Sequence[Sender]) -> None:
        for sender in senders:
            sender.stop()
        for sender in senders:
            sender.join(500)
            try:
                sender.target.close()
            except Exception:
                log.exception("close_failed", route=sender.route.name)
