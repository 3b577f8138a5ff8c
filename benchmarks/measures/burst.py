"""A burst: 200,000 messages of one topic fall due in the same ms, while other topics get 200 messages a second.

The burst's drain rate is set beside that of a backlog with spread dues. The others' messages have no ordering
key and delays of 100 to 500 ms; counted are those that fall due while the burst drains.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import RssMeter, Scale, in_pairs
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until
from benchmarks.load.messages import make, spread
from benchmarks.load.producer import Plan
from benchmarks.measures.drain import backlog, plain_rate
from benchmarks.measures.lateness import Lateness, Traffic, lateness
from benchmarks.results import Figure, paired, single
from benchmarks.running.processes import server, worker
from delayq import Client

__all__ = ["run"]

TOPIC: Final = "coupon.expire"
OTHERS: Final = ("order.cancel", "order.dispatch", "payment.check")
RATE: Final = 200
DELAYS: Final = (100, 500)
#: The burst is taken to drain at least so fast; the others go on for as long.
SLOWEST: Final = 40_000
BEFORE_MS: Final = 2_000


class Burst(msgspec.Struct, frozen=True):
    """A burst's drain rate, the worker's resident MiB before it and at most, the others' lateness."""

    rate: float
    before: float
    peak: float
    others: Lateness


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure bursts."""
    bursts: list[Burst] = []

    def ours() -> float:
        bursts.append(_measure(backlog(scale)))
        return bursts[-1].rate

    pairs = in_pairs("burst", scale.runs, lambda: plain_rate(scale), ours)
    late = [burst.others for burst in bursts]
    figures = [
        paired("burst drained, beside spread dues", "messages/s", pairs, goal=0.9),
        single("worker's memory, growth", "MiB", [burst.peak - burst.before for burst in bursts], goal=64),
        single("others meanwhile, p50", "ms", [one.consumer["p50"] for one in late]),
        single("others meanwhile, p99", "ms", [one.consumer["p99"] for one in late], goal=30),
        single("others meanwhile, max", "ms", [one.consumer["max"] for one in late]),
        single("others meanwhile, early", "messages", [one.early for one in late], goal=0),
    ]
    return figures, {"bursts": msgspec.to_builtins(bursts)}


def _measure(count: int) -> Burst:
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url) as process,
        Client(running.url) as client,
        closing(Watch(running.url, (TOPIC,))) as watch,
    ):
        moment = in_time(count) + BEFORE_MS
        seconds = BEFORE_MS / 1000 + count / SLOWEST + 1
        plan = Plan(running.url, OTHERS, RATE, moment - BEFORE_MS, seconds, DELAYS)
        schedule_ahead(client, make(count, spread(moment, 1), topics=(TOPIC,)), moment - BEFORE_MS)
        with Traffic(plan, Path(folder)) as traffic:
            sleep_until(moment - 100)
            with RssMeter(process.pid).watching() as memory:
                drained = watch.streams_filled(count, moment)
            arrived, _ = traffic.wait()
        end = moment + 1000 * drained
        process.check()
        others = [one for one in arrived if moment <= one.due <= end]
    return Burst(count / drained, memory.before / 2**20, memory.peak / 2**20, lateness(others))
