"""How the CPU of a message grows with what is pending: from 10,000 to 3,000,000 messages.

With few pending, 10,000 messages at a time are scheduled, or fall due and are drained, again and again. With many,
a random subset of half of those pending falls due and is drained in due order, and as many are scheduled beside the
others. What plain HSET and ZADD cost is measured with as many pending, and what it costs to drain as many of those that
stand there by plain HGET, XADD, ZREM and HDEL: their growth is that of a memory which no cache holds. CPU is that of the
server; to drain, that of the server and the worker.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.errors import TooLate
from benchmarks.harness import CpuMeter, Scale, now, progress
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, span_of
from benchmarks.load.messages import make, spread
from benchmarks.load.standing import Cpu, Sizes, delayq_many, drain, far, plain_many
from benchmarks.measures.schedule import schedule_all
from benchmarks.results import Figure, Pair, paired
from benchmarks.running import limit
from benchmarks.running.processes import connect, server, worker
from delayq import Client

__all__ = ["run"]

FEW: Final = 10_000
GOAL: Final = 1.3


class Growth(msgspec.Struct):
    """CPU µs a message, run by run: with few pending and with many."""

    few: list[Cpu] = []
    many: list[Cpu] = []

    def grown(self, name: str = "") -> float:
        """By what the CPU has multiplied; of one process, or of all."""
        return self._median(self.many, name) / self._median(self.few, name)

    @staticmethod
    def _median(runs: list[Cpu], name: str) -> float:
        return statistics.median(cpu[name] if name else sum(cpu.values()) for cpu in runs)


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure growth."""
    sizes = Sizes(300_000, 50_000, 1) if scale.quick else Sizes(3_000_000, 200_000, 3)
    plain, plain_drain, schedule, drained = Growth(), Growth(), Growth(), Growth()
    for number in range(1, sizes.rounds + 1):
        progress(f"growth: {FEW:,} pending, run {number} of {sizes.rounds}")
        for growth, cost in zip((plain, plain_drain), _plain_few(sizes.measured), strict=True):
            growth.few.append(cost)
        schedule.few.append(_schedule_few(sizes.measured))
        drained.few.append(_drain_few(sizes.measured))
    schedule.many, drained.many = delayq_many(sizes)
    plain.many, plain_drain.many = plain_many(sizes)
    names = f"{FEW:,} → {sizes.many:,} pending"
    beside = Pair(schedule.grown(), plain.grown())
    figures = [
        Figure(name=f"drain, CPU growth, {names}", value=drained.grown(), unit="×", goal=GOAL, at_most=True),
        paired(f"drain, CPU growth beside plain commands, {names}", "×", [Pair(drained.grown(), plain_drain.grown())]),
        paired(f"schedule, CPU growth, {names}", "×", [beside], goal=GOAL, at_most=True),
        Figure(name="drain, growth of the server's CPU alone", value=drained.grown("server"), unit="×"),
        Figure(name="drain, growth of the worker's CPU alone", value=drained.grown("worker"), unit="×"),
    ]
    costs = {"plain": plain, "plain drain": plain_drain, "schedule": schedule, "drain": drained}
    return figures, {f"{name}, CPU µs a message": msgspec.to_builtins(cost) for name, cost in costs.items()}


def _plain_few(measured: int) -> tuple[Cpu, Cpu]:
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder, server() as running:
        load, drain = Path(folder, "load"), Path(folder, "drain")
        messages = far(FEW, 1)
        replies = limit.write_drain(drain, messages, limit.write_schedule(load, messages))
        scheduled, drained = CpuMeter(server=running.pid), CpuMeter(server=running.pid)
        with connect(running.url) as connection:
            for _ in range(measured // FEW):
                for meter, path, count in ((scheduled, load, 2 * FEW), (drained, drain, replies)):
                    meter.begin()
                    limit.feed(running.port, path, count)
                    meter.end(FEW)
                connection.execute_command("FLUSHALL", "SYNC")
        return scheduled.each(), drained.each()


def _schedule_few(measured: int) -> Cpu:
    messages = far(FEW, 1)
    with server() as running, Client(running.url) as client, connect(running.url) as connection:
        schedule_all(client, messages)
        meter = CpuMeter(server=running.pid)
        for _ in range(measured // FEW):
            connection.execute_command("FLUSHALL", "SYNC")  # scripts stay
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
        schedule_all(client, make(100, spread(int(now()), 1)))  # the worker gets to know the topics
        watch.streams_filled(100, int(now()))
        watch.delete_streams()
        meter = CpuMeter(server=running.pid, worker=process.pid)
        rounds = measured // FEW
        counted = 0
        for _ in range(2 * rounds):
            counted += counted < rounds and _drain_round(client, watch, meter)
        if counted < rounds:
            raise TooLate(f"only {counted} of {rounds} rounds were scheduled in time")
        return meter.each()


def _drain_round(client: Client, watch: Watch, meter: CpuMeter) -> bool:
    """Measure how a few are drained; False if they could not be scheduled in time."""
    moment = in_time(FEW, spare=500)
    try:
        schedule_ahead(client, make(FEW, spread(moment, span_of(FEW))), moment)
    except TooLate:
        watch.streams_filled(FEW, moment)
        watch.delete_streams()
        return False
    drain(watch, meter, FEW, moment)
    return True
