"""Draining a backlog: messages that were scheduled before become due together, and one worker delivers them all.

The time runs from their due time to the last delivery, 200,000 messages at a time. The limit is a plain socket that sends
HGET, XADD, ZREM and HDEL for the same messages. For a message with a key it sends another ZREM. Freeing scattered
records is a large part of the server's work, so the allocator matters. The runs use the wheel's server, and a server with
jemalloc if the machine has one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import CpuMeter, Scale, in_turns, now, pairs_of, progress, sure
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import make, spread
from benchmarks.results import LEFT_OUT, Figure, paired
from benchmarks.running import limit
from benchmarks.running.processes import NULL, server, server_for, with_jemalloc, worker
from delayq import Client
from testbed.errors import ServerMissing

RATE: Final = "messages/s"
BACKLOG: Final = 200_000
NULL_ROUTES: Final = '[{"name":"null","match":"*","target":"null:"}]'


class Variant(msgspec.Struct, frozen=True):
    """A kind of backlog and its destination, on the wheel's server or on `binary`."""

    name: str
    keys: int
    goal: float
    null: bool = False
    binary: Path | None = None


VARIANTS: Final = (
    Variant("into Redis Streams, plain", 0, 1.0),
    Variant("into Redis Streams, one business key", 1, 0.9),
    Variant("through the general path into a null target", 0, 1.5, null=True),
)
JEMALLOC: Final = Variant("into Redis Streams, plain, on a server with jemalloc", 0, 1.0)


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure every variant."""
    figures = []
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name:
        for variant in _variants(scale, details):
            limits = Limit(Path(name), backlog(scale), variant)
            costs: list[dict[str, float]] = []
            measures: dict[str, Callable[[], float]] = {
                "limit": limits.measure,
                "delayq": partial(measure, variant, scale, costs),
            }
            rounds = in_turns(f"drain {variant.name}", scale.runs + 2, measures, swap=True, enough=sure(scale.runs))
            figures.append(paired(variant.name, RATE, pairs_of(rounds), goal=variant.goal))
            details[f"{variant.name}, CPU µs a message"] = costs
    return figures, details


def _variants(scale: Scale, details: dict[str, Any]) -> Iterator[Variant]:
    yield from VARIANTS
    if scale.redis_url:
        return
    try:
        yield msgspec.structs.replace(JEMALLOC, binary=with_jemalloc())
    except ServerMissing as error:
        details[LEFT_OUT] = {JEMALLOC.name: str(error)}


class Limit:
    """The limit of draining, encoded once and measured any number of times."""

    def __init__(self, folder: Path, count: int, variant: Variant) -> None:
        progress(f"drain: preparing {count:,} messages")
        self._count, self._variant, self._load = count, variant, folder / "load"
        messages = list(make(count, spread(int(now()), span_of(count)), keys=variant.keys))
        placed = limit.write_schedule(self._load, messages)
        self._drain = folder / "drain", limit.write_drain(folder / "drain", messages, placed)

    def measure(self) -> float:
        """The messages/s of the limit."""
        with server(binary=self._variant.binary) as running:
            limit.feed(running.port, self._load, self._count * (2 + self._variant.keys))
            return self._count / limit.feed(running.port, *self._drain)


def measure(variant: Variant, scale: Scale, costs: list[dict[str, float]]) -> float:
    """The messages/s of delayq; the cost of a message is added to `costs`."""
    count = backlog(scale)
    module = NULL if variant.null else "workers"
    with (
        server_for(scale, binary=variant.binary) as running,
        worker(running.url, module, NULL_ROUTES if variant.null else "") as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        moment, span = in_time(count), span_of(count)
        schedule_ahead(client, make(count, spread(moment, span), keys=variant.keys), moment)
        sleep_until(moment - 5)
        meter = CpuMeter(server=running.pid, worker=process.pid)
        drained = watch.pool_emptied if variant.null else watch.streams_filled
        seconds = drained(count, moment)
        meter.end(count)
        costs.append(meter.each())
        process.check()
        return count / seconds


def backlog(scale: Scale) -> int:
    """The number of messages of a drain: some seconds of work. A larger backlog is neither faster nor slower."""
    return min(scale.messages, BACKLOG)


def plain_rate(scale: Scale) -> float:
    """The messages/s of the first variant, for comparison."""
    return measure(VARIANTS[0], scale, [])
