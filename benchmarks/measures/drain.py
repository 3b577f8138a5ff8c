"""Draining a backlog: messages scheduled ahead fall due together, and one worker forwards them all.

Measured from the moment they fall due to the last one forwarded, in seven pairs (three with `--quick`). The limit is
`redis-cli --pipe` with HGET, XADD, ZREM and HDEL of the same messages, and a ZREM more of each that has a key.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.backlog import Watch, lead, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import make, spread
from benchmarks.results import Figure, paired
from benchmarks.running import limit
from benchmarks.running.processes import server, server_for, worker
from delayq import Client

__all__ = ["NULL_ROUTES", "VARIANTS", "Variant", "measure", "plain_rate", "run"]

NULL_ROUTES: Final = '[{"name":"null","match":"*","target":"null:"}]'


class Variant(msgspec.Struct, frozen=True):
    """What is drained, and where to."""

    name: str
    keys: int
    goal: float
    null: bool = False


VARIANTS: Final = (
    Variant("into Redis Streams, plain", 0, 1.1),
    Variant("into Redis Streams, one business key", 1, 0.9),
    Variant("through the general path into a null target", 0, 0.7, null=True),
)


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure every variant."""
    figures = []
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name:
        for variant in VARIANTS:
            beside = Limit(Path(name), scale.messages, variant.keys)
            costs: list[dict[str, float]] = []
            pairs = in_pairs(
                f"drain {variant.name}", 2 * scale.runs + 1, beside.measure, partial(measure, variant, scale, costs),
                swap=True,
            )  # fmt: skip
            figures.append(paired(variant.name, "messages/s", pairs, goal=variant.goal))
            details[f"{variant.name}, CPU µs a message"] = costs
    return figures, details


class Limit:
    """The limit of draining, encoded once and measured as often as wanted."""

    def __init__(self, folder: Path, count: int, keys: int) -> None:
        progress(f"drain: preparing {count:,} messages")
        self._count, self._keys = count, keys
        self._load, self._drain = folder / "load", folder / "drain"
        messages = list(make(count, spread(int(now()), span_of(count)), keys=keys))
        placed = limit.write_schedule(self._load, messages)
        self._replies = limit.write_drain(self._drain, messages, placed)

    def measure(self) -> float:
        """Messages/s."""
        with server() as running:
            limit.feed(running.port, self._load, self._count * (2 + self._keys))
            return self._count / limit.feed(running.port, self._drain, self._replies)


def measure(variant: Variant, scale: Scale, costs: list[dict[str, float]]) -> float:
    """Messages/s of delayq; what each cost is added to `costs`."""
    count = scale.messages
    module = "benchmarks.running.worker_with_null" if variant.null else "workers"
    with (
        server_for(scale) as running,
        worker(running.url, module, NULL_ROUTES if variant.null else "") as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        moment, span = int(now()) + lead(count), span_of(count)
        schedule_ahead(client, make(count, spread(moment, span), keys=variant.keys), moment)
        sleep_until(moment - 5)
        meter = CpuMeter(server=running.pid, worker=process.pid)
        drained = watch.pool_emptied if variant.null else watch.streams_filled
        seconds = drained(count, moment)
        meter.end(count)
        costs.append(meter.each())
        process.check()
        return count / seconds


def plain_rate(scale: Scale) -> float:
    """Messages/s of the first variant, to set others beside."""
    return measure(VARIANTS[0], scale, [])
