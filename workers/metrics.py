"""Prometheus metrics of a node. Labels are routes and outcomes only: bounded, and never ids or keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from delayq.store.commands import Pulled
from delayq.targets import Result
from workers.held import Held

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

    def acked(self, messages: Sequence[Held], now: int) -> None:
        """Forwarded messages left the queue. The lateness of a batch is that of its last one: cheap, and the least."""
        self._acked.inc(len(messages))
        if messages:
            self._lateness.observe(max(0, now - messages[-1].record.asked) / 1000)

    def serve(self, host: str, port: int, node: Node) -> None:
        """Answer /metrics on a thread of its own."""
        Gauge("delayq_in_flight", "Messages held", registry=self.registry).set_function(
            lambda: sum(len(job.dispatch.flight) for job in list(node.jobs.values()))
        )
        start_http_server(port, host, registry=self.registry)
