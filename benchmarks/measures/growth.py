"""Growth: how the CPU for a message grows from 10,000 to 3,000,000 pending messages.

With few pending messages, 10,000 at a time are scheduled, or become due and are drained, again and again. With many, a
random subset of half of them becomes due and is drained in due order, and as many are scheduled beside the others. The
comparison schedules with plain HSET and ZADD beside as many pending messages. The cost of these commands grows because no
cache holds that much memory. The CPU is that of the server; to drain, that of the server and the worker.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import CpuMeter, Scale, now, progress
from benchmarks.load.backlog import Watch, in_time, lead, schedule_ahead, schedule_all, sleep_until, span_of
from benchmarks.load.messages import DAY, Due, make, spread
from benchmarks.results import Figure, Pair, paired
from benchmarks.running import limit
from benchmarks.running.processes import connect, server, worker
from delayq import Client, Message

FEW: Final = 10_000
GOAL: Final = 1.3
#: Messages that are created at a time, because all outcomes of a call have to fit into memory.
SLICE: Final = 100_000

#: CPU µs a message, by process.
Cpu = dict[str, float]


class Sizes(msgspec.Struct, frozen=True):
    """The largest number of pending messages, the messages of a measurement, and the number of rounds."""

    many: int
    measured: int
    rounds: int


class Growth(msgspec.Struct):
    """CPU µs a message in each run, with few pending messages and with many."""

    few: list[Cpu] = []
    many: list[Cpu] = []

    def grown(self) -> float:
        """The factor by which the CPU of all processes has grown."""
        many, few = (statistics.median(sum(cpu.values()) for cpu in runs) for runs in (self.many, self.few))
        return many / few


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure with few pending messages, then with many."""
    sizes = Sizes(300_000, 50_000, 1) if scale.quick else Sizes(3_000_000, 200_000, 3)
    plain, schedule, drained = Growth(), Growth(), Growth()
    for number in range(1, sizes.rounds + 1):
        progress(f"growth: {FEW:,} pending, run {number} of {sizes.rounds}")
        plain.few.append(_plain_few(sizes.measured))
        schedule.few.append(_schedule_few(sizes.measured))
        drained.few.append(_drain_few(sizes.measured))
    schedule.many, drained.many = _delayq_many(sizes)
    plain.many = _plain_many(sizes)
    names = f"{FEW:,} → {sizes.many:,} pending"
    beside = Pair(schedule.grown(), plain.grown())
    figures = [
        Figure(name=f"drain, CPU growth, {names}", value=drained.grown(), unit="×", goal=GOAL, at_most=True),
        paired(f"schedule, CPU growth, {names}", "×", [beside], goal=GOAL, at_most=True),
    ]
    costs = {"plain": plain, "schedule": schedule, "drain": drained}
    return figures, {f"{name}, CPU µs a message": msgspec.to_builtins(cost) for name, cost in costs.items()}


def _plain_few(measured: int) -> Cpu:
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder, server() as running:
        path, meter = Path(folder, "commands"), CpuMeter(server=running.pid)
        limit.write_schedule(path, _far(FEW, 1))
        with connect(running.url) as connection:
            for _ in range(measured // FEW):
                meter.begin()
                limit.feed(running.port, path, 2 * FEW)
                meter.end(FEW)
                connection.execute_command("FLUSHALL", "SYNC")
        return meter.each()


def _schedule_few(measured: int) -> Cpu:
    messages = _far(FEW, 1)
    with server() as running, Client(running.url) as client, connect(running.url) as connection:
        schedule_all(client, messages)
        meter = CpuMeter(server=running.pid)
        for _ in range(measured // FEW):
            connection.execute_command("FLUSHALL", "SYNC")  # scripts stay loaded
            meter.begin()
            schedule_all(client, messages)
            meter.end(FEW)
        return meter.each()


def _drain_few(measured: int) -> Cpu:
    with (
        server() as running,
        worker(running.url) as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        schedule_all(client, make(100, spread(int(now()), 1)))  # so that the worker knows the topics
        watch.streams_filled(100, int(now()))
        watch.delete_streams()
        meter = CpuMeter(server=running.pid, worker=process.pid)
        for _ in range(measured // FEW):
            moment = in_time(FEW, spare=1_000)
            schedule_ahead(client, make(FEW, spread(moment, span_of(FEW))), moment)
            _drain(watch, meter, FEW, moment)
        return meter.each()


def _far(count: int, seed: int) -> list[Message]:
    """Messages that are due in two days."""
    return list(make(count, _in_two_days(), seed=seed))


def _in_two_days() -> Due:
    return spread(int(now()) + 2 * DAY, DAY)


def _drain(watch: Watch, meter: CpuMeter, count: int, moment: int) -> None:
    """Measure how messages that are due at `moment` are drained; then delete the streams."""
    sleep_until(moment - 2)
    meter.begin()
    watch.streams_filled(count, moment)
    meter.end(count)
    watch.delete_streams()


class _Subset:
    """Due times of a part of the pending messages: far ahead, except for a random subset that is due in each round."""

    def __init__(self, sizes: Sizes, some: int, first: int, apart: int) -> None:
        self.moments = [first + apart * number for number in range(sizes.rounds)]
        self.counts = [0] * sizes.rounds
        self._span = span_of(sizes.measured)
        self._share = sizes.measured / some
        self._far = _in_two_days()

    def due(self, chooser: random.Random) -> int:
        """The due time of one message."""
        number = int(chooser.random() / self._share)
        if number >= len(self.moments):
            return self._far(chooser)
        self.counts[number] += 1
        return self.moments[number] + int(chooser.random() * self._span)


def _slices(first: int, end: int, due: Due) -> Iterator[list[Message]]:
    for begin in range(first, end, SLICE):
        progress(f"growth: {begin:,} pending")
        yield list(make(min(SLICE, end - begin), due, seed=100 + begin // SLICE))


def _fill(client: Client, sizes: Sizes) -> _Subset:
    """Schedule the pending messages. The rate of the first half determines the due times of the second half."""
    half = sizes.many // 2
    began = time.perf_counter()
    for some in _slices(0, half, _in_two_days()):
        schedule_all(client, some)
    pace = half / (time.perf_counter() - began)
    a_round = 2 * lead(sizes.measured, pace=pace) + 1000 * sizes.measured // 50_000
    subset = _Subset(sizes, half, in_time(half, pace=pace) + a_round, a_round)
    for some in _slices(half, sizes.many, subset.due):
        schedule_all(client, some)
    return subset


def _delayq_many(sizes: Sizes) -> tuple[list[Cpu], list[Cpu]]:
    """Measure scheduling and draining with many pending messages, in turn, so that their number stays."""
    scheduled, drained = [], []
    with (
        server() as running,
        worker(running.url) as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        subset = _fill(client, sizes)
        for number, moment in enumerate(subset.moments):
            progress(f"growth: {sizes.many:,} pending, round {number + 1} of {sizes.rounds}")
            new = _far(sizes.measured, 10 + number)
            meter = CpuMeter(server=running.pid)
            schedule_ahead(client, new, moment)
            meter.end(len(new))
            scheduled.append(meter.each())
            meter = CpuMeter(server=running.pid, worker=process.pid)
            _drain(watch, meter, subset.counts[number], moment)
            drained.append(meter.each())
    return scheduled, drained


def _plain_many(sizes: Sizes) -> list[Cpu]:
    """Measure plain HSET and ZADD with many pending messages."""
    scheduled = []
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder, server() as running:
        path = Path(folder, "commands")
        for some in _slices(0, sizes.many, _in_two_days()):
            limit.write_schedule(path, some)
            limit.feed(running.port, path, 2 * len(some))
        for number in range(sizes.rounds):
            limit.write_schedule(path, _far(sizes.measured, 10 + number))
            time.sleep(1)
            meter = CpuMeter(server=running.pid)
            limit.feed(running.port, path, 2 * sizes.measured)
            meter.end(sizes.measured)
            scheduled.append(meter.each())
    return scheduled
