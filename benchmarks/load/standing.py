"""A standing backlog of many messages, a random part of which falls due in each round; see growth.py."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import CpuMeter, now, progress
from benchmarks.load.backlog import Watch, in_time, lead, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import DAY, Due, make, spread
from benchmarks.measures.schedule import schedule_all
from benchmarks.running import limit
from benchmarks.running.processes import server, worker
from delayq import Client, Message
from delayq.embedded import EmbeddedServer

__all__ = ["Cpu", "Sizes", "delayq_many", "drain", "far", "plain_many"]

SLICE: Final = 100_000

#: CPU µs a message, by process.
Cpu = dict[str, float]


class Sizes(msgspec.Struct, frozen=True):
    """How many are pending at most, how many are measured at a time, and how often."""

    many: int
    measured: int
    rounds: int


def far(count: int, seed: int) -> list[Message]:
    """Messages that fall due in two days."""
    return list(make(count, _in_two_days(), seed=seed))


def _in_two_days() -> Due:
    return spread(int(now()) + 2 * DAY, DAY)


def drain(watch: Watch, meter: CpuMeter, count: int, moment: int) -> None:
    """Measure how what falls due at `moment` is drained; then delete the streams."""
    sleep_until(moment - 2)
    meter.begin()
    watch.streams_filled(count, moment)
    meter.end(count)
    watch.delete_streams()


class Subset:
    """The dues of some of a standing backlog: far ahead, but for a random part in each round, which is counted."""

    def __init__(self, sizes: Sizes, some: int, first: int, apart: int) -> None:
        self.moments = [first + apart * number for number in range(sizes.rounds)]
        self.counts = [0] * sizes.rounds
        self._span = span_of(sizes.measured)
        self._share = sizes.measured / some
        self._far = _in_two_days()

    def due(self, chooser: random.Random) -> int:
        """One message's due."""
        number = int(chooser.random() / self._share)
        if number >= len(self.moments):
            return self._far(chooser)
        self.counts[number] += 1
        return self.moments[number] + int(chooser.random() * self._span)


def _slices(first: int, end: int, due: Due) -> Iterator[list[Message]]:
    for begin in range(first, end, SLICE):
        progress(f"growth: {begin:,} pending")
        yield list(make(min(SLICE, end - begin), due, seed=100 + begin // SLICE))


def _fill(client: Client, sizes: Sizes) -> Subset:
    """Schedule the standing backlog. How fast its first half went in says when the rest will be there, to fall due."""
    half = sizes.many // 2
    began = time.perf_counter()
    for some in _slices(0, half, _in_two_days()):
        schedule_all(client, some)
    pace = half / (time.perf_counter() - began)
    a_round = 2 * lead(sizes.measured, pace=pace) + 1000 * sizes.measured // 50_000
    subset = Subset(sizes, half, in_time(half, pace=pace) + a_round, a_round)
    for some in _slices(half, sizes.many, subset.due):
        schedule_all(client, some)
    return subset


def delayq_many(sizes: Sizes) -> tuple[list[Cpu], list[Cpu]]:
    """Scheduling and draining with many pending, in turn, so that their number stays."""
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
            new = far(sizes.measured, 10 + number)
            meter = CpuMeter(server=running.pid)
            schedule_ahead(client, new, moment)
            meter.end(len(new))
            scheduled.append(meter.each())
            meter = CpuMeter(server=running.pid, worker=process.pid)
            drain(watch, meter, subset.counts[number], moment)
            drained.append(meter.each())
    return scheduled, drained


def plain_many(sizes: Sizes) -> tuple[list[Cpu], list[Cpu]]:
    """Feeding plain HSET and ZADD with many pending, and draining as many of those that stand there, at random, plainly."""
    scheduled, drained = [], []
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder, server() as running:
        path = Path(folder, "commands")
        every = sizes.many // (sizes.measured * sizes.rounds)
        standing: list[tuple[Message, limit.Placed]] = []
        for some in _slices(0, sizes.many, _in_two_days()):
            placed = limit.write_schedule(path, some)
            limit.feed(running.port, path, 2 * len(some))
            standing += zip(some[::every], placed[::every], strict=True)
        for number in range(sizes.rounds):
            messages = far(sizes.measured, 10 + number)
            limit.write_schedule(path, messages)
            time.sleep(1)
            scheduled.append(_fed(running, path, 2 * len(messages), len(messages)))
            chosen, where = zip(*standing[number :: sizes.rounds], strict=True)
            drained.append(_fed(running, path, limit.write_drain(path, chosen, where), len(chosen)))
    return scheduled, drained


def _fed(running: EmbeddedServer, path: Path, replies: int, count: int) -> Cpu:
    meter = CpuMeter(server=running.pid)
    limit.feed(running.port, path, replies)
    meter.end(count)
    return meter.each()
