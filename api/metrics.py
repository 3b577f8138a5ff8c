"""The metrics of the API: plain numbers during requests, converted when Prometheus scrapes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from delayq.telemetry.histogram import Histogram

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
FLUSH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)


class Metrics:
    """The metrics of one API process. Labels are routes, methods, statuses and results; none comes from outside."""

    def __init__(self) -> None:
        self.scheduled: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.audited = 0
        self.flushes = Histogram(FLUSH)
        self.waiting: Callable[[], int] = lambda: 0
        self.keys_stale: Callable[[], bool] = lambda: False
        #: The largest lag of a consumer group, and the age (ms) of the oldest message that a group has not acknowledged.
        self.lags: tuple[int | None, int | None] = (None, None)
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[route, method, status] += 1
        try:
            histogram = self._seconds[route]
        except KeyError:
            histogram = self._seconds[route] = Histogram(SECONDS)
        histogram.add(seconds)

    def render(self) -> bytes:
        """Return the text that Prometheus reads."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for the registry."""
        requests = CounterMetricFamily("delayq_api_requests", "requests answered", labels=("route", "method", "status"))
        for (route, method, status), count in self._requests.items():
            requests.add_metric((route, method, str(status)), count)
        yield requests
        seconds = HistogramMetricFamily(
            "delayq_api_request_seconds", "Time from reading a request to its answer.", labels=("route",)
        )
        for route, histogram in self._seconds.items():
            seconds.add_metric((route,), histogram.buckets(), histogram.total)
        yield seconds
        for name, text, counts in (
            ("delayq_api_scheduled", "Messages that were requested to be scheduled, by result.", self.scheduled),
            ("delayq_api_cancelled", "Messages that were requested to be cancelled, by result.", self.cancelled),
        ):
            family = CounterMetricFamily(name, text, labels=("result",))
            for result, count in counts.items():
                family.add_metric((result,), count)
            yield family
        entries = "Manual changes, and changes of keys with audit."
        yield CounterMetricFamily("delayq_audit_entries", entries, self.audited)
        flushes = HistogramMetricFamily("delayq_api_flush_messages", "Messages that shared one trip to Redis.")
        flushes.add_metric((), self.flushes.buckets(), self.flushes.total)
        yield flushes
        yield GaugeMetricFamily("delayq_api_waiting", "Messages that wait for a trip to Redis.", self.waiting())
        lag, age = self.lags
        for name, text, value in (
            ("delayq_consumer_lag", "The most messages that one consumer group has not acknowledged.", lag),
            ("delayq_consumer_oldest_seconds", "Age of the oldest such message.", None if age is None else age / 1000),
        ):
            yield GaugeMetricFamily(name, text, value)
        stale = "1 while the file of keys is invalid and the earlier keys are in force."
        yield GaugeMetricFamily("delayq_api_keys_stale", stale, int(self.keys_stale()))
