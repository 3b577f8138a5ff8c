"""Prometheus metrics of a node. Labels are routes, outcomes and queues only: bounded, and never ids, keys or topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from delayq.nodes import LATENESS
from delayq.policies import number_of
from delayq.store.commands import COUNTERS, Pulled, Released
from delayq.targets import Result
from delayq.telemetry.histogram import Histogram
from workers.sending.message import InFlightMessage

if TYPE_CHECKING:
    from workers.node.node import Node

__all__ = ["Metrics"]


class Metrics:
    """An `Observer` that counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._appended = Counter(
            "delayq_appended_total", "Messages appended to streams in the same Redis", registry=self.registry
        )
        self._sent = Counter(
            "delayq_sent_total", "Sends of messages to targets", ["route", "outcome"], registry=self.registry
        )
        self._acked = Counter("delayq_acked_total", "Forwarded messages removed", registry=self.registry)
        self.lateness = Histogram(LATENESS)
        self._lock = threading.Lock()  # of the lateness, once for a batch, and of the failures
        self.registry.register(_Collected(partial(_of_lateness, self.lateness)))
        ProcessCollector(registry=self.registry)
        self._failed = Counter(
            "delayq_pull_job_failures_total", "Unexpected errors in pull jobs, see the log", registry=self.registry
        )
        self.failures = 0  # the same, for the node's line
        self._took = PrometheusHistogram("delayq_send_seconds", "Length of a send", ["route"], registry=self.registry)
        self._open = Gauge(
            "delayq_circuit_open", "1 while a target is held for broken", ["route"], registry=self.registry
        )

    def pulled(self, pulled: Pulled | Released) -> None:
        """A pull returned messages, or appended them to streams itself."""
        if pulled.appended:
            self._appended.inc(pulled.appended)
            if pulled.last is not None:  # the due times of the others are not known
                with self._lock:
                    self.lateness.add(max(0, pulled.now - pulled.last[0]) / 1000, pulled.appended)

    def sent(self, route: str, results: Sequence[Result], took: int) -> None:
        """A send ended after `took` ms."""
        first = results[0].outcome if results else "ok"
        if all(result.outcome == first for result in results):
            self._sent.labels(route, first).inc(len(results))
        else:
            for result in results:
                self._sent.labels(route, result.outcome).inc()
        self._took.labels(route).observe(took / 1000)

    def circuit(self, route: str, open: bool) -> None:
        """A circuit opened or closed."""
        self._open.labels(route).set(1 if open else 0)

    def failed(self) -> None:
        """A pull job met an unexpected error, or Redis refused a command of it."""
        self._failed.inc()
        with self._lock:
            self.failures += 1

    def acked(self, messages: Sequence[InFlightMessage], now: int) -> None:
        """Delivered messages were removed from the queue."""
        self._acked.inc(len(messages))
        with self._lock:
            for message in messages:
                self.lateness.add(max(0, now - message.record.asked) / 1000)

    def watch(self, node: Node) -> None:
        """Read gauges from the node whenever they are scraped."""
        self.registry.register(_Collected(partial(_of_node, node)))


class _Collected(Collector):
    """Calls a function each time that the registry collects."""

    def __init__(self, find: Callable[[], Iterable[Metric]]) -> None:
        self._find = find

    def collect(self) -> Iterable[Metric]:
        """The metrics that the function finds now."""
        return self._find()


def _of_lateness(counted: Histogram) -> Iterator[Metric]:
    """How late messages were."""
    found = HistogramMetricFamily("delayq_lateness_seconds", "Due to acknowledged, or to appended in the same Redis")
    found.add_metric([], counted.buckets(), counted.total)
    yield found


def _of_node(node: Node) -> Iterator[Metric]:
    jobs, watch = list(node.jobs.values()), node.watch
    yield _gauge("delayq_in_flight", "Messages held", sum(len(job.in_flight) for job in jobs))
    yield _gauge("delayq_queues", "Queues owned, of all layouts", len(jobs))
    alarms = "What is wrong with Redis or the messages now; the log says it"
    yield _gauge("delayq_alarms", alarms, len(watch.alarms) if watch else 0)
    yield _gauge("delayq_missing", "Messages scheduled, not ended, and not there", watch.missing if watch else 0)
    yield _gauge("delayq_went_back", "Times that Redis had lost last changes of a queue", node.history.went_back)
    yield _gauge("delayq_parked", "Messages set aside in all queues, at the last look", watch.parked if watch else 0)
    yield from _of_policies(node)
    yield from _of_backlogs(node)
    yield from _of_queues(node)
    yield from _of_servers(node)
    yield _gauge(
        "delayq_stuck_queues", "Queues that hand out messages and have none confirmed", sum(job.stuck for job in jobs)
    )
    failing = sum(job.pulls_fail is not None for job in jobs) if node.redis_clock.answers else 0
    yield _gauge("delayq_failing_queues", "Queues of which nothing can be pulled, though Redis answers", failing)
    refusing = sum(len(job.refusals.reasons) for job in jobs)
    yield _gauge("delayq_refusing_streams", "Streams in the same Redis that take nothing", refusing)
    yield _gauge("delayq_clock_skew_seconds", "The clock of Redis minus this node's", node.skew.ms / 1000)


def _of_policies(node: Node) -> Iterator[Metric]:
    """Pauses and limits, and the messages that they hold."""
    policies, held = node.policies.current, dict(node.watch.held) if node.watch is not None else {}
    acted_on = min((job.version for job in node.jobs.values()), default=policies.version)
    yield _gauge("delayq_held", "Messages that a pause or a limit holds, in all queues", sum(held.values()))
    yield _gauge("delayq_paused_policies", "Pauses that this node knows of", len(policies.pauses))
    since = min((pause.since for pause in policies.pauses.values()), default=0)
    yield _gauge(
        "delayq_paused_since_seconds", "Since when the oldest of them holds, Unix time; 0: there is none", since / 1000
    )
    yield _gauge("delayq_policy_version", "The policies that all its pull jobs act on", number_of(acted_on))
    wait = "How long what a limit holds takes at its rate, of the slowest"
    yield _gauge("delayq_limit_wait_seconds", wait, max(policies.waits(held).values(), default=0))


def _of_backlogs(node: Node) -> Iterator[Metric]:
    """The backlog of consumers of streams in this Redis: of each route the largest, at the last look."""
    text = "Entries that the slowest consumers of a stream have yet to read or to acknowledge"
    found = GaugeMetricFamily("delayq_stream_backlog", text, labels=["route"])
    if node.watch is not None:
        for route, backlog in node.watch.backlogs.items():
            found.add_metric([route], backlog)
    yield found


def _of_queues(node: Node) -> Iterator[Metric]:
    """The figures of all queues together at the last look, and by queue of those that this node owns."""
    watch, ownership = node.watch, node.ownership
    stats = watch.stats if watch is not None else ()
    yield _gauge("delayq_all_queues", "Queues that there are, of all layouts", len(watch.queues) if watch else 0)
    yield _gauge("delayq_pending", "Messages in all queues that are not parked", sum(one.scheduled for one in stats))
    yield _gauge("delayq_due", "Messages in all queues whose time has come", sum(one.due for one in stats))
    yield _gauge("delayq_dead_letters", "Dead letters in all queues", sum(one.dead for one in stats))
    overdue = GaugeMetricFamily("delayq_head_overdue_seconds", "Since when the first one is due", labels=["queue"])
    for one in stats:
        if one.queue in node.jobs:
            overdue.add_metric([str(one.queue)], one.head_lateness / 1000)
    yield overdue
    events = CounterMetricFamily("delayq_messages", "What became of messages, in all queues", labels=["event"])
    for name in COUNTERS if stats else ():
        events.add_metric([name], sum(one.counters[name] for one in stats))
    yield events
    claims, fenced = (ownership.claims, ownership.fenced) if ownership is not None else (0, 0)
    yield CounterMetricFamily("delayq_claims", "Queues that this node became the owner of", claims)
    yield CounterMetricFamily("delayq_fenced", "Queues that another node had taken over before it let go", fenced)


def _of_servers(node: Node) -> Iterator[Metric]:
    """How Redis and ZooKeeper are, as this node sees them."""
    yield _gauge("delayq_redis_up", "1 while Redis answers", int(node.redis_clock.answers))
    yield _gauge("delayq_redis_trip_seconds", "How long its last answer took", node.redis_clock.took / 1000)
    server = node.watch.server if node.watch is not None else None
    if server is not None:
        yield _gauge("delayq_redis_memory_bytes", "Memory of the fullest primary", server.used_memory)
        yield _gauge("delayq_redis_memory_limit_bytes", "Its maxmemory, 0 = none", server.max_memory or 0)
        yield _gauge("delayq_redis_replicas", "Replicas of the primary with the fewest", server.replicas)
        failing = "1 while a write to the append-only file, or a snapshot, has failed"
        yield _gauge("delayq_redis_disk_failing", failing, int(server.disk_failing))
        needed = "1 from a failed write to the append-only file on until a rewrite has succeeded"
        suspect = any(disk.suspect or disk.failing for disk in server.disks)
        yield _gauge("delayq_redis_rewrite_needed", needed, int(suspect))
    if node.settings.zookeeper:
        text = "1 while this node is registered under a session with ZooKeeper"
        connected = node.coordinator is not None and node.coordinator.connected
        yield _gauge("delayq_zookeeper_connected", text, int(connected))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)
