"""Lateness: how long after its due time a message arrives at the consumer.

Messages with delays of 500 to 3,000 ms are scheduled at a steady rate in an open loop. The producer, the worker and a
consumer that blocks on the topic's stream are processes of their own. Lateness is the time from a message's due time to its
arrival at the consumer; the details have the lateness of its stream entry, too. It is measured in turn with a million
pending messages, which are due in two days, and with none.

Burst: 200,000 messages of one topic become due in the same ms. Other topics get 200 messages a second, with delays of 100 to
500 ms and without an ordering key. The burst's rate is compared with the drain of a backlog with spread due times. The
lateness of the others counts while the burst drains.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import CpuMeter, RssMeter, Scale, in_pairs, in_turns, now, progress
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, schedule_all, sleep_until
from benchmarks.load.messages import DAY, make, spread
from benchmarks.load.traffic import DELAYS, PERCENTILES, WARM_UP, Lateness, Plan, Traffic, lateness
from benchmarks.measures.drain import backlog, plain_rate
from benchmarks.results import Figure, Pair, paired, single
from benchmarks.running.processes import server, server_for, worker
from delayq import Client

RATE: Final = 1_000
GOALS: Final = {1000: {"p50": 0.8, "p99": 3.0}, 5000: {"p99": 6.0}}
#: Other pending messages, and the goal for p99 with them beside p99 without.
PENDING: Final = 1_000_000
PENDING_TIMES: Final = 1.2
#: The topic of the burst, and the traffic of the others: its topics, messages/s, delays (ms), and ms before the burst.
TOPIC: Final = "coupon.expire"
OTHERS: Final = ("order.cancel", "order.dispatch", "payment.check")
OTHERS_RATE: Final = 200
SHORT_DELAYS: Final = (100, 500)
WARM_UP_MS: Final = 2_000
#: The slowest assumed drain of the burst in messages/s; the others continue for as long.
SLOWEST: Final = 40_000


class Burst(msgspec.Struct, frozen=True):
    """A burst: its rate in messages/s, the worker's resident MiB before it and at most, the lateness of the others."""

    rate: float
    before: float
    peak: float
    others: Lateness


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure both rates, and the lower rate with many pending messages, in turns; then bursts."""
    seconds, many = (8.0, PENDING // 10) if scale.quick else (12.0, PENDING)
    pending = f"at {RATE:,}/s with {many:,} pending"
    measures = {_at(rate): partial(_measure, scale, rate, seconds) for rate in GOALS}
    measures[pending] = partial(_measure, scale, RATE, seconds, many)
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
    burst, more = _bursts(scale)
    return [*figures, *burst], details | more


def _at(rate: int) -> str:
    return f"at {rate:,}/s"


def _measure(scale: Scale, rate: int, seconds: float, pending: int = 0) -> tuple[Lateness, dict[str, Any]]:
    """Measure lateness at one rate, with this many pending messages; return it with details."""
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


def _bursts(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    bursts: list[Burst] = []

    def ours() -> float:
        bursts.append(_burst(backlog(scale)))
        return bursts[-1].rate

    pairs = in_pairs("lateness, burst", scale.runs, lambda: plain_rate(scale), ours)
    late = [burst.others for burst in bursts]
    figures = [
        paired("burst drained, beside spread due times", "messages/s", pairs, goal=0.9),
        single("worker's memory, growth", "MiB", [burst.peak - burst.before for burst in bursts], goal=64),
        single("others meanwhile, p50", "ms", [one.consumer["p50"] for one in late]),
        single("others meanwhile, p99", "ms", [one.consumer["p99"] for one in late], goal=30),
        single("others meanwhile, max", "ms", [one.consumer["max"] for one in late]),
        single("others meanwhile, early", "messages", [one.early for one in late], goal=0),
    ]
    return figures, {"bursts": msgspec.to_builtins(bursts)}


def _burst(count: int) -> Burst:
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url) as process,
        Client(running.url) as client,
        closing(Watch(running.url, (TOPIC,))) as watch,
    ):
        moment = in_time(count) + WARM_UP_MS
        seconds = WARM_UP_MS / 1000 + count / SLOWEST + 1
        plan = Plan(running.url, OTHERS, OTHERS_RATE, moment - WARM_UP_MS, seconds, SHORT_DELAYS)
        schedule_ahead(client, make(count, spread(moment, 1), topics=(TOPIC,)), moment - WARM_UP_MS)
        with Traffic(plan, Path(folder)) as traffic:
            sleep_until(moment - 100)
            with RssMeter(process.pid).watching() as memory:
                drained = watch.streams_filled(count, moment)
            arrived, _ = traffic.wait()
        end = moment + 1000 * drained
        process.check()
        others = [one for one in arrived if moment <= one.due <= end]
    return Burst(count / drained, memory.before / 2**20, memory.peak / 2**20, lateness(others))
