"""Prometheus metrics of a node. Labels are routes and outcomes only: bounded, and never ids or keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from delayq.store.commands import Pulled
from delayq.targets import Result
from workers.held import Held
from workers.watch import Watch

if TYPE_CHECKING:
    from workers.node import Node

__all__ = ["Metrics"]

_LATENESS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)


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
        self._lateness = Histogram(
            "delayq_lateness_seconds", "Due to acknowledged", buckets=_LATENESS, registry=self.registry
        )
        self._failed = Counter(
            "delayq_pull_job_failures_total", "Unexpected errors in pull jobs, see the log", registry=self.registry
        )
        self._took = Histogram("delayq_send_seconds", "Length of a send", ["route"], registry=self.registry)
        self._open = Gauge(
            "delayq_circuit_open", "1 while a target is held for broken", ["route"], registry=self.registry
        )

    def pulled(self, pulled: Pulled) -> None:
        """Messages were taken, or appended to streams by the pull itself."""
        if pulled.appended:
            self._appended.inc(pulled.appended)

    def sent(self, route: str, results: Sequence[Result], took: int) -> None:
        """A send ended after so many ms."""
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
        """A pull job met an unexpected error, or Redis refused what it was told; it goes on."""
        self._failed.inc()

    def acked(self, messages: Sequence[Held], now: int) -> None:
        """Forwarded messages left the queue. The lateness of a batch is that of its last one: cheap, and the least."""
        self._acked.inc(len(messages))
        if messages:
            self._lateness.observe(max(0, now - messages[-1].record.asked) / 1000)

    def watch(self, node: Node) -> None:
        """Ask the node for what is looked at, not counted."""
        Gauge("delayq_in_flight", "Messages held", registry=self.registry).set_function(
            lambda: sum(len(job.dispatch.flight) for job in list(node.jobs.values()))
        )
        Gauge("delayq_queues", "Queues owned, of all layouts", registry=self.registry).set_function(
            lambda: len(node.jobs)
        )
        alarms = "What is wrong with Redis or the messages now; the log says it"
        self._watched("delayq_alarms", alarms, node, lambda watch: len(watch.alarms))
        self._watched(
            "delayq_missing", "Messages scheduled, not ended, and not there", node, lambda watch: watch.missing
        )
        self._watched(
            "delayq_went_back", "Times that Redis had lost its last changes", node, lambda watch: watch.went_back
        )
        self._watched(
            "delayq_parked", "Messages set aside in all queues, at the last look", node, lambda watch: watch.parked
        )
        self.registry.register(_Backlogs(node))
        Gauge(
            "delayq_stuck_queues", "Queues that hand out messages and have none confirmed", registry=self.registry
        ).set_function(lambda: sum(job.stuck for job in list(node.jobs.values())))
        Gauge("delayq_clock_skew_seconds", "The clock of Redis minus this node's", registry=self.registry).set_function(
            lambda: node.skew.ms / 1000
        )

    def _watched(self, name: str, text: str, node: Node, figure: Callable[[Watch], int]) -> None:
        gauge = Gauge(name, text, registry=self.registry)
        gauge.set_function(lambda: figure(node.watch) if node.watch is not None else 0)


class _Backlogs(Collector):
    """What consumers of streams in this Redis have yet to do: of each route the fullest, as the watch saw it last."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        """What the registry asks for."""
        text = "Entries that the slowest consumers of a stream have yet to read or to acknowledge"
        found = GaugeMetricFamily("delayq_stream_backlog", text, labels=["route"])
        if self._node.watch is not None:
            for route, backlog in self._node.watch.backlogs.items():
                found.add_metric([route], backlog)
        yield found
