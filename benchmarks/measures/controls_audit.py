"""What it costs to write down who cancels: cancels in bulk, 500 in a script, with an entry for the audit beside those without.

Rates are by the clock; CPU is the server's for each message.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now
from benchmarks.load.messages import DAY, make, spread
from benchmarks.results import Figure, Pair, paired
from benchmarks.running.processes import server
from delayq import Client, Scheduled
from delayq.client.audit import By

__all__ = ["run"]

MESSAGES: Final = 100_000
GOAL: Final = 0.85
PAIRS: Final = 7
BY: Final = By(actor="shop", key="5f3a9c01d2e4", address="10.0.0.5", reason="the shop is closed today")


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Cancels a second with an entry, beside those without."""
    count = MESSAGES // 5 if scale.quick else MESSAGES
    costs: dict[str, list[float]] = {"without": [], "with": []}
    pairs = in_pairs(
        "cancels with an entry in the audit",
        3 if scale.quick else PAIRS,
        partial(_cancelled, count, None, costs["without"]),
        partial(_cancelled, count, BY, costs["with"]),
        swap=True,
    )
    cpu = [Pair(ours, limit) for ours, limit in zip(costs["with"], costs["without"], strict=True)]
    return [
        paired("cancels with an entry in the audit, beside those without", "messages/s", pairs, goal=GOAL),
        paired("the server's CPU of these", "µs a message", cpu, goal=round(1 / GOAL, 2), at_most=True),
    ], {}


def _cancelled(count: int, by: By | None, costs: list[float]) -> float:
    """Messages cancelled a second."""
    with server() as running, Client(running.url) as client:
        scheduled = client.schedule_many(make(count, spread(int(now()) + DAY, DAY), keys=1))
        ids = [one.id for one in scheduled if isinstance(one, Scheduled)]
        meter = CpuMeter(server=running.pid)
        began = time.perf_counter()
        outcomes = client.cancel_many(ids, by=by)
        seconds = time.perf_counter() - began
        meter.end(count)
        costs.append(meter.each()["server"])
        if len(ids) < count or not all(one.result == "cancelled" for one in outcomes):
            raise BenchmarkError("not all were cancelled")
        return count / seconds
