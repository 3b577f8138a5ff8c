"""What looking for messages and counting them costs: searches beside calls that schedule, forecasts, a worker's census."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.harness import CpuMeter, Scale, in_turns, now, progress
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures.schedule import schedule_all
from benchmarks.results import NOTES, Figure, percentile, single
from benchmarks.running.processes import python, server, worker
from delayq import Client, Message

__all__ = ["run"]

LOOKED_GOAL: Final = 100_000
LATENCY_GOAL_MS: Final = 10
FORECAST_GOAL_MS: Final = 100
CENSUS_GOAL: Final = 2
#: Messages that are made at a time: what becomes of all of them has to fit into memory.
SLICE: Final = 100_000
STEP: Final = 15 * 60_000
BUCKETS: Final = 96
#: Seconds between two calls that schedule.
APART: Final = 0.005


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure searches, forecasts and the census."""
    pending = scale.pending or scale.messages
    seconds = 5.0 if scale.quick else 20.0
    with server() as running, Client(running.url) as client:
        progress(f"controls, search: scheduling {pending:,} messages")
        for seed, begin in enumerate(range(0, pending, SLICE)):
            some = min(SLICE, pending - begin)
            schedule_all(client, make(some, spread(int(now()) + DAY, DAY), seed=seed))
        searched = [_searched(client, running.url, seconds) for _ in range(scale.runs)]
        alone = [_p99(client, seconds) for _ in range(scale.runs)]
        forecasts = [_forecast(client) for _ in range(10 * scale.runs)]
        census = in_turns(
            "controls, search",
            scale.runs,
            {
                name: lambda module=module: _cpu(running.url, running.pid, module, 2 * seconds)  # type: ignore[misc]
                for name, module in {"with": "workers", "without": "benchmarks.running.worker_without_census"}.items()
            },
        )
    return [
        single(
            "messages looked at by a search that finds nothing",
            "/s",
            [looked for looked, _ in searched],
            goal=LOOKED_GOAL,
            at_most=False,
        ),
        single("a call that schedules beside it, p99", "ms", [took for _, took in searched], goal=LATENCY_GOAL_MS),
        single("a call that schedules alone, p99", "ms", alone),
        single(f"a forecast of {BUCKETS} steps", "ms", forecasts, goal=FORECAST_GOAL_MS),
        single(
            "what a census costs the worker and its server",
            "% of a core",
            [100 * (one["with"] - one["without"]) / (2 * seconds) for one in census],
            goal=CENSUS_GOAL,
        ),
    ], {NOTES: [f"Searched among {pending:,} messages; `--pending` takes another number."]}


def _searched(client: Client, url: str, seconds: float) -> tuple[float, float]:
    """Messages looked at a second, and the p99 in ms of calls that schedule meanwhile."""
    with python("-m", "benchmarks.load.searcher", url, str(seconds + 2)) as process:
        time.sleep(1)
        took = _p99(client, seconds)
        process.wait(60)
        return float(process.said()), took


def _p99(client: Client, seconds: float) -> float:
    took = []
    for message in _messages():
        began = time.perf_counter()
        client.schedule(message)
        took.append(1_000 * (time.perf_counter() - began))
        if sum(took) / 1_000 + APART * len(took) > seconds:
            break
        time.sleep(APART)
    return percentile(sorted(took), 99)


def _messages() -> Iterator[Message]:
    while True:
        yield Message(topic="orders.unpaid", body="x" * 100, delay_time=DAY)


def _forecast(client: Client) -> float:
    began, begin = time.perf_counter(), int(now()) + DAY
    client.forecast(begin, begin + BUCKETS * STEP, STEP)
    return 1_000 * (time.perf_counter() - began)


def _cpu(url: str, pid: int | None, module: str, seconds: float) -> float:
    """CPU seconds of an idle worker and its server."""
    with worker(url, module) as process:
        time.sleep(3)
        meter = CpuMeter(worker=process.pid, server=pid)
        time.sleep(seconds)
        meter.end(1)
        process.check()
    return sum(meter.seconds().values())
