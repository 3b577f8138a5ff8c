"""Lateness of delivery: messages with delays of 500 to 3,000 ms, scheduled at a steady rate in an open loop.

The producer, the worker and a consumer that blocks on the topic's stream are processes of their own. Lateness is the
time between a message's due and its arrival at the consumer; how late its stream entry was made is told beside it.
With a million messages pending besides, which fall due in two days, it is measured in turn with none. The highest rate is
the last of a ladder whose p99 is within 10 ms; each step is 1.25 times the one before, and counts if one of two tries does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_turns, now, progress, wait_for
from benchmarks.load.consumer import Arrival, arrivals
from benchmarks.load.handshake import Handshake
from benchmarks.load.messages import DAY, make, spread
from benchmarks.load.producer import Plan
from benchmarks.measures.schedule import schedule_all
from benchmarks.results import Figure, Pair, paired, percentile, single
from benchmarks.running.processes import Process, python, server_for, worker
from delayq import Client

__all__ = ["GOALS", "Lateness", "Traffic", "highest", "lateness", "measure", "run"]

DELAYS: Final = (500, 3000)
WARM_UP: Final = 4.0
#: s that a producer and a consumer may take to start, and ms after which they begin then.
STARTING: Final = 30.0
SOON: Final = 100
RATE: Final = 1_000
GOALS: Final = {1000: {"p50": 0.8, "p99": 3.0}, 5000: {"p99": 6.0}}
#: Messages pending besides, and how much later p99 may be with them.
PENDING: Final = 1_000_000
PENDING_TIMES: Final = 1.2
#: The ladder's first rate, the s that count of each, its p99 in ms, and the goal.
LOWEST: Final = 5_000
LADDER_SECONDS: Final = 6.0
STEP: Final = 1.25
HIGHEST_MS: Final = 10.0
HIGHEST: Final = 10_000
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
        name = plan.topics[0]
        self._file = folder / f"arrivals of {name}"
        self._handshake = Handshake(folder / f"plan of {name}")
        self._reader = None if reader else self._file
        words = reader or ("-m", "benchmarks.load.consumer", plan.url, ",".join(plan.topics))
        self._consumer = python(*words, str(plan.count), str(self._file))
        self._producer = python("-m", "benchmarks.load.producer", plan.url, self._handshake.argument)
        self._running: tuple[Process, Process] | None = None

    def __enter__(self) -> Traffic:
        with ExitStack() as stack:
            self._running = (stack.enter_context(self._consumer), stack.enter_context(self._producer))
            wait_for("a producer and a consumer", self._there, seconds=STARTING)
            if not self.plan.start:
                self.plan = msgspec.structs.replace(self.plan, start=now() + SOON)
            self._handshake.tell(msgspec.json.encode(self.plan))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _there(self) -> bool:
        for process in self._running or ():
            process.check()
        return self._handshake.ready() and (self._reader is None or self._reader.exists())

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
    """Measure both rates, and the lower one with many messages pending, in turns; then the ladder."""
    seconds, many = (8.0, PENDING // 10) if scale.quick else (12.0, PENDING)
    pending = f"at {RATE:,}/s with {many:,} pending"
    measures = {_at(rate): partial(measure, scale, rate, seconds) for rate in GOALS}
    measures[pending] = partial(measure, scale, RATE, seconds, many)
    rounds = in_turns("lateness", scale.runs, measures, swap=True)
    figures = []
    details: dict[str, Any] = {}
    for rate, goals in GOALS.items():
        runs = [found[_at(rate)] for found in rounds]
        found = [late for late, _ in runs]
        figures += [
            single(f"{_at(rate)}, {what}", "ms", [late.consumer[what] for late in found], goal=goals.get(what))
            for what in PERCENTILES
        ]
        figures.append(single(f"{_at(rate)}, early", "messages", [late.early for late in found], goal=0))
        details[_at(rate)] = [msgspec.to_builtins(late) | more for late, more in runs]
    pairs = [Pair(*(found[name][0].consumer["p99"] for name in (pending, _at(RATE)))) for found in rounds]
    figures.append(paired(f"{pending}, p99 beside that without", "ms", pairs, goal=PENDING_TIMES, at_most=True))
    if not scale.quick:
        figures.append(highest(lambda rate: measure(scale, rate, LADDER_SECONDS)[0].consumer["p99"]))
    return figures, details


def _at(rate: int) -> str:
    return f"at {rate:,}/s"


def highest(p99: Callable[[int], float]) -> Figure:
    """The highest rate of the ladder up to which p99 was within its bound."""
    rate = reached = 0.0
    parts: dict[str, float] = {}
    while rate == reached:
        reached, rate = rate, rate * STEP or LOWEST
        for _ in range(2):
            try:
                parts[f"p99 at {rate:,.0f}/s"] = late = p99(int(rate))
            except BenchmarkError as error:  # the producer or the consumer cannot keep up
                progress(f"lateness at {rate:,.0f}/s: {error}")
                continue
            if late <= HIGHEST_MS:
                reached = rate
                break
    name = f"highest steady rate with a p99 of {HIGHEST_MS:g} ms"
    return single(name, "messages/s", [reached], goal=HIGHEST, at_most=False, parts=[parts])


def measure(scale: Scale, rate: int, seconds: float, pending: int = 0) -> tuple[Lateness, dict[str, Any]]:
    """Lateness at one rate, with so many pending besides, and what else is worth knowing."""
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server_for(scale, rewrites=True) as running,
        worker(running.url) as process,
    ):
        with Client(running.url) as client:
            schedule_all(client, make(pending, spread(int(now()) + 2 * DAY, DAY)))
        plan = Plan(running.url, ("order.cancel",), rate, 0, WARM_UP + seconds, DELAYS)
        with Traffic(plan, Path(folder)) as traffic:
            first = traffic.plan.start + 1000 * WARM_UP
            meter = CpuMeter(server=running.pid, worker=process.pid)
            arrived, late_producer = traffic.wait()
            meter.end(len(arrived))
        found = lateness([one for one in arrived if first <= one.due < first + 1000 * seconds])
    progress(f"lateness at {rate:,}/s: {found.consumer}")
    return found, {"producer late, ms": round(late_producer, 1), "CPU µs a message": meter.each()}
