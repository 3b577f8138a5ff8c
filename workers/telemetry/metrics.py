"""Prometheus metrics of a node. The labels are routes, outcomes and queues, which are few; never ids, keys or topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client import Histogram as PrometheusHistogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from delayq.domain.policies import number_of
from delayq.store.commands import COUNTERS, Pulled, Released
from delayq.targets import Result
from delayq.telemetry.histogram import Histogram
from workers.sending.message import InFlightMessage
from workers.sending.observer import Observer

if TYPE_CHECKING:
    from workers.node.node import Node


class Metrics(Observer):
    """An `Observer` that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        self._appended = Counter(
            "delayq_appended_total", "Messages appended to streams in the same Redis", registry=self.registry
        )
        self._sent = Counter(
            "delayq_sent_total", "Sends of messages to targets", ["route", "outcome"], registry=self.registry
        )
        self._acked = Counter(
            "delayq_acked_total", "Delivered messages removed from their queues", registry=self.registry
        )
        self._lock = threading.Lock()  # of lateness and failures; taken once for a batch
        self.registry.register(_Collected(partial(_of_lateness, self.lateness)))
        ProcessCollector(registry=self.registry)
        self._failed = Counter(
            "delayq_pull_job_failures_total", "Unexpected errors in pull jobs, see the log", registry=self.registry
        )
        self._took = PrometheusHistogram("delayq_send_seconds", "Length of a send", ["route"], registry=self.registry)
        self._open = Gauge(
            "delayq_circuit_open", "1 while the circuit of a target is open", ["route"], registry=self.registry
        )

    def delivered(self) -> tuple[int, Mapping[str, int]]:
        """How many messages pulls appended to streams, and how many sends of each route succeeded, since the start."""
        appended = sum(one.value for one in _samples(self._appended, "delayq_appended_total"))
        sent = {
            one.labels["route"]: int(one.value)
            for one in _samples(self._sent, "delayq_sent_total")
            if one.labels["outcome"] == "ok"
        }
        return int(appended), sent

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
        """Read gauges from the node at each scrape."""
        self.registry.register(_Collected(partial(_of_node, node)))


def _samples(counter: Counter, name: str) -> Iterator[Sample]:
    """The values of a counter, without the times of their creation."""
    return (one for metric in counter.collect() for one in metric.samples if one.name == name)


class _Collected(Collector):
    """Calls a function at each scrape."""

    def __init__(self, find: Callable[[], Iterable[Metric]]) -> None:
        self._find = find

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of now."""
        return self._find()


def _of_lateness(counted: Histogram) -> Iterator[Metric]:
    """The lateness of messages."""
    found = HistogramMetricFamily("delayq_lateness_seconds", "Due to acknowledged, or to appended in the same Redis")
    found.add_metric([], counted.buckets(), counted.total)
    yield found


def _of_node(node: Node) -> Iterator[Metric]:
    jobs, checked = list(node.jobs.values()), node.alarms
    yield _gauge("delayq_in_flight", "Messages in flight", sum(len(job.in_flight) for job in jobs))
    yield _gauge("delayq_queues", "Queues owned, of all layouts", len(jobs))
    alarms = "Current alarms about Redis or the messages; the log has their texts"
    yield _gauge("delayq_alarms", alarms, len(checked.current))
    missing = "Messages that are missing: scheduled, not ended, and not in Redis"
    yield _gauge("delayq_missing", missing, checked.missing)
    yield _gauge("delayq_went_back", "Times that Redis lost the last changes of a queue", node.losses.went_back)
    yield _gauge("delayq_parked", "Parked messages in all queues, at the last check", checked.parked)
    yield from _of_policies(node)
    yield from _of_backlogs(node)
    yield from _of_queues(node)
    yield from _of_servers(node)
    yield _gauge(
        "delayq_stuck_queues", "Queues that send messages, none of which is confirmed", sum(job.stuck for job in jobs)
    )
    failing = sum(job.pulls_fail is not None for job in jobs) if node.redis_clock.answers else 0
    yield _gauge("delayq_failing_queues", "Queues that cannot be pulled although Redis answers", failing)
    refusing = sum(len(job.topics.refused) for job in jobs)
    yield _gauge("delayq_refusing_streams", "Streams in the same Redis that accept no message", refusing)
    yield _gauge("delayq_clock_skew_seconds", "The clock of Redis minus this node's", node.skew.ms / 1000)


def _of_policies(node: Node) -> Iterator[Metric]:
    """Pauses and limits, and the messages that they hold."""
    policies, held = node.policies.current, dict(node.alarms.held)
    acted_on = min((job.version for job in node.jobs.values()), default=policies.version)
    yield _gauge("delayq_held", "Messages that a pause or a limit holds, in all queues", sum(held.values()))
    yield _gauge("delayq_paused_policies", "Pauses in the policies of this node", len(policies.pauses))
    since = min((pause.since for pause in policies.pauses.values()), default=0)
    yield _gauge(
        "delayq_paused_since_seconds", "Start of the oldest pause, Unix time; 0 if there is none", since / 1000
    )
    yield _gauge(
        "delayq_policy_version", "The version of the policies that all its pull jobs have", number_of(acted_on)
    )
    wait = "Time until the messages of the slowest limit are delivered at its rate"
    yield _gauge("delayq_limit_wait_seconds", wait, max(policies.waits(held).values(), default=0))


def _of_backlogs(node: Node) -> Iterator[Metric]:
    """The largest backlog of each route: entries that consumers of a stream in this Redis have not read."""
    text = "Entries that the slowest consumers of a stream have not read or acknowledged"
    found = GaugeMetricFamily("delayq_stream_backlog", text, labels=["route"])
    for route, backlog in node.alarms.backlogs.items():
        found.add_metric([route], backlog)
    yield found


def _of_queues(node: Node) -> Iterator[Metric]:
    """The sums over all queues at the last check, and figures of each queue that this node owns."""
    checked, ownership = node.alarms, node.ownership
    stats = checked.stats
    yield _gauge("delayq_all_queues", "Queues of all layouts", len(checked.queues))
    yield _gauge("delayq_pending", "Messages in all queues that are not parked", sum(one.scheduled for one in stats))
    yield _gauge("delayq_due", "Due messages in all queues", sum(one.due for one in stats))
    yield _gauge("delayq_dead_letters", "Dead letters in all queues", sum(one.dead for one in stats))
    overdue = GaugeMetricFamily(
        "delayq_head_overdue_seconds", "Age of the due time of the earliest message", labels=["queue"]
    )
    for one in stats:
        if one.queue in node.jobs:
            overdue.add_metric([str(one.queue)], one.head_lateness / 1000)
    yield overdue
    events = CounterMetricFamily("delayq_messages", "Events of messages, in all queues", labels=["event"])
    for name in COUNTERS if stats else ():
        events.add_metric([name], sum(one.counters[name] for one in stats))
    yield events
    claims, fenced = (ownership.claims, ownership.fenced) if ownership is not None else (0, 0)
    yield CounterMetricFamily("delayq_claims", "Claims of queues by this node", claims)
    yield CounterMetricFamily(
        "delayq_fenced", "Queues that another node took over before this node released them", fenced
    )


def _of_servers(node: Node) -> Iterator[Metric]:
    """The state of Redis and ZooKeeper, as this node sees it."""
    yield _gauge("delayq_redis_up", "1 while Redis answers", int(node.redis_clock.answers))
    yield _gauge("delayq_redis_trip_seconds", "Duration of its last round trip", node.redis_clock.took / 1000)
    server = node.alarms.server
    if server is not None:
        yield _gauge("delayq_redis_memory_bytes", "Memory of the fullest primary", server.used_memory)
        yield _gauge("delayq_redis_memory_limit_bytes", "Its maxmemory, 0 = none", server.max_memory or 0)
        yield _gauge("delayq_redis_replicas", "Replicas of the primary that has the fewest", server.replicas)
        failing = "1 while a write to the append-only file, or a snapshot, has failed"
        yield _gauge("delayq_redis_disk_failing", failing, int(server.disk_failing))
        needed = "1 from a failed write to the append-only file until a rewrite succeeds"
        suspect = any(disk.failing or (disk.suspect and not disk.refuses_for_snapshots) for disk in server.disks)
        yield _gauge("delayq_redis_rewrite_needed", needed, int(suspect))
    if node.settings.zookeeper:
        text = "1 while this node is registered in ZooKeeper"
        connected = node.coordinator is not None and node.coordinator.connected
        yield _gauge("delayq_zookeeper_connected", text, int(connected))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)
