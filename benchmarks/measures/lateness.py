"""Lateness of delivery: messages with delays of 500 to 3,000 ms, scheduled at a steady rate in an open loop.

The producer, the worker and a consumer that blocks on the topic's stream are processes of their own. Lateness is the
time between a message's due and its arrival at the consumer; how late its stream entry was made is told beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, now, progress
from benchmarks.load.consumer import Arrival, arrivals
from benchmarks.load.producer import Plan
from benchmarks.results import Figure, percentile, single
from benchmarks.running.processes import Process, python, server_for, worker

__all__ = ["GOALS", "Lateness", "Traffic", "lateness", "measure", "run"]

DELAYS: Final = (500, 3000)
WARM_UP: Final = 4.0
GOALS: Final = {1000: {"p50": 0.8, "p99": 3.0}, 5000: {"p99": 6.0}}
PERCENTILES: Final = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}


class Lateness(msgspec.Struct, frozen=True):
    """How late messages were, in ms, at the consumer and by the id of the stream entry; how many came early."""

    consumer: dict[str, float]
    entry: dict[str, float]
    early: int
    count: int


def lateness(some: Sequence[Arrival]) -> Lateness:
    """Work out the percentiles."""
    if not some:
        raise BenchmarkError("no message fell due in the time that counts")
    late = sorted(one.late for one in some)
    entry_late = sorted(one.entry_late for one in some)
    return Lateness(
        consumer={name: round(percentile(late, percent), 3) for name, percent in PERCENTILES.items()},
        entry={name: percentile(entry_late, percent) for name, percent in PERCENTILES.items()},
        early=sum(one.late < 0 or one.entry_late < 0 for one in some),
        count=len(some),
    )


class Traffic:
    """A producer with its plan, and a consumer of the same topics; `reader` stands in for that of Redis Streams."""

    def __init__(self, plan: Plan, folder: Path, reader: Sequence[str] = ()) -> None:
        self.plan = plan
        self._file = folder / f"arrivals of {plan.topics[0]}"
        words = reader or ("-m", "benchmarks.load.consumer", plan.url, ",".join(plan.topics))
        self._consumer = python(*words, str(plan.count), str(self._file))
        self._producer = python("-m", "benchmarks.load.producer", *plan.arguments())
        self._running: tuple[Process, Process] | None = None

    def __enter__(self) -> Traffic:
        self._running = (self._consumer.__enter__(), self._producer.__enter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._producer.__exit__(*error)
        self._consumer.__exit__(*error)

    def wait(self) -> tuple[list[Arrival], float]:
        """Wait until all is sent and has arrived: the arrivals, and by how many ms the producer was late."""
        assert self._running is not None
        consumer, producer = self._running
        patience = max(0.0, self.plan.start / 1000 - now() / 1000) + self.plan.seconds + 20
        producer.wait(patience)
        consumer.wait(patience)
        arrived = list(arrivals(self._file))
        if len(arrived) != self.plan.count:
            raise BenchmarkError(f"{len(arrived)} of {self.plan.count} messages arrived")
        return arrived, float(producer.said())


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure both rates."""
    figures = []
    details: dict[str, Any] = {}
    for rate, goals in GOALS.items():
        runs = [measure(scale, rate, 8.0 if scale.quick else 30.0, number) for number in range(1, scale.runs + 1)]
        found = [late for late, _ in runs]
        name = f"at {rate:,}/s"
        figures += [
            single(f"{name}, {what}", "ms", [late.consumer[what] for late in found], goal=goals.get(what))
            for what in PERCENTILES
        ]
        figures.append(single(f"{name}, early", "messages", [late.early for late in found], goal=0))
        details[name] = [msgspec.to_builtins(late) | more for late, more in runs]
    return figures, details


def measure(scale: Scale, rate: int, seconds: float, number: int) -> tuple[Lateness, dict[str, Any]]:
    """Lateness at one rate, and what else is worth knowing."""
    progress(f"lateness at {rate:,}/s for {seconds:.0f} s, run {number}")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server_for(scale, rewrites=True) as running,
        worker(running.url) as process,
    ):
        start = now() + 2000
        plan = Plan(running.url, ("order.cancel",), rate, start, WARM_UP + seconds, DELAYS)
        with Traffic(plan, Path(folder)) as traffic:
            meter = CpuMeter(server=running.pid, worker=process.pid)
            arrived, late_producer = traffic.wait()
            meter.end(len(arrived))
        first = start + 1000 * WARM_UP
        found = lateness([one for one in arrived if first <= one.due < first + 1000 * seconds])
    progress(f"lateness at {rate:,}/s: {found.consumer}")
    return found, {"producer late, ms": round(late_producer, 1), "CPU µs a message": meter.each()}
