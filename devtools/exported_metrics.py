"""The metrics that the code exports, from an API and a worker that have recorded each event once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.metrics import Metrics as ApiMetrics
from delayq.config import load_settings
from delayq.domain.codec import encode
from delayq.domain.message import Limits, Message
from delayq.store.commands import Pulled
from delayq.targets import OK
from workers.node.duties.alarms import Alarms
from workers.node.node import Node
from workers.queue.topics import Topics
from workers.sending.message import InFlightMessage
from workers.telemetry.metrics import Metrics as WorkerMetrics

_SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


class Metric(NamedTuple):
    """A metric as a table has it."""

    name: str
    kind: str
    labels: frozenset[str]

    @property
    def series(self) -> set[str]:
        """The names that an expression may use."""
        base = self.name.removesuffix("_total")
        return {base + suffix for suffix in _SUFFIXES[self.kind]}


def _worker(redis_url: str) -> bytes:
    node = Node(load_settings(redis_url=redis_url, queues=2, zookeeper="127.0.0.1:1"))
    node.alarms = Alarms(node.store, [0, 1])
    node.alarms.look_at_server()
    node.alarms.look_at_queues()
    node.alarms.backlogs = {"streams": 7}
    topics = Topics(node.routes, redis_url, node.store.keys)
    job: Any = SimpleNamespace(version="", stuck=False, pulls_fail=None, in_flight=(), topics=topics)
    ownership: Any = SimpleNamespace(jobs={0: job}, claims=1, fenced=0)
    node.ownership = ownership
    metrics = WorkerMetrics()
    metrics.watch(node)
    metrics.pulled(Pulled(20_100, 0, None, False, 0, (20_000, b"x"), 1, [], [], [], [], [], {}))
    metrics.sent("route", [OK], 5)
    metrics.circuit("route", True)
    content = encode(Message(topic="orders", delay_time=0, body="x"), Limits())
    metrics.acked([InFlightMessage(b"a\x000000001", 20_000, 0, b"0000001%013d0" % 20_000 + content)], 20_500)
    node.store.close()
    return generate_latest(metrics.registry)


def _api() -> bytes:
    metrics = ApiMetrics()
    metrics.request("/v1/messages", "POST", 201, 0.01)
    metrics.scheduled["created"] += 1
    metrics.cancelled["cancelled"] += 1
    metrics.flushes.add(1)
    metrics.lags = (1, 1_000)
    return metrics.render()


def exported(redis_url: str) -> dict[str, Metric]:
    """The metrics by name. The Redis behind the URL only has to answer."""
    found: dict[str, Metric] = {}
    for text in (_worker(redis_url), _api()):
        for family in text_string_to_metric_families(text.decode()):
            if family.name.endswith("_created"):
                continue
            if not family.samples:
                raise ValueError(f"devtools/exported_metrics.py:1: {family.name} has no samples: have it see something")
            labels = frozenset(name for sample in family.samples for name in sample.labels) - {"le"}
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = Metric(name, family.type, labels)
    return found
