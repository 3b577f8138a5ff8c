"""What windows and policies cost those who schedule: `Client.schedule_many` with them, beside the same without.

Both sides schedule the same messages, whose dues are spread over a day already: a window of ten minutes more changes nothing
of what the server does, and the rates differ by the client's work alone. The details have the CPU of both.

Beside that, how even a window is: a million rows that all say the same moment, spread over ten minutes as a backfill does it.
That is counted in Redis, second by second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.messages import DAY, QUEUES, TOPICS, make, spread
from benchmarks.measures.schedule import accepted, schedule_all
from benchmarks.results import Figure, paired, single
from benchmarks.running.processes import connect, server, server_for
from delayq import Client, Message
from delayq.policies import MAKER
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import queue_keys

__all__ = ["run"]

MESSAGES: Final = 200_000
PAIRS: Final = 9
MINUTES: Final = 600_000
ROWS: Final = 1_000_000
GOAL: Final = 0.95
PEAK: Final = 1.2


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Rates beside those without, and the fullest second of a backfill."""
    count = MESSAGES // 10 if scale.quick else MESSAGES
    plain = list(make(count, spread(int(now()) + DAY, DAY)))
    spread_out = [msgspec.structs.replace(message, window=MINUTES) for message in plain]
    measures: dict[str, tuple[list[Message], dict[str, Any], float | None]] = {
        "schedule with a window, beside without": (spread_out, {}, GOAL),
        "schedule under policies of other topics, beside no policies": (plain, {"match": "nowhere", "window": 1}, None),
        "schedule under a policy with a window, beside no policies": (plain, {"match": "*", "window": MINUTES}, None),
        "schedule under a policy that counts the topic, beside no policies": (
            plain,
            {"match": "*", "index": ["topic"]},
            None,
        ),
    }
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    for name, (messages, policy, goal) in measures.items():
        costs: list[dict[str, float]] = []
        costs_without: list[dict[str, float]] = []
        pairs = in_pairs(
            name,
            3 if scale.quick else PAIRS,
            partial(_rate, scale, plain, {}, costs_without),
            partial(_rate, scale, messages, policy, costs),
            swap=True,
        )
        figures.append(paired(name, "messages/s", pairs, goal=goal))
        details[f"{name}, CPU µs a message"] = costs
        details[f"{name}, CPU µs a message without"] = costs_without
    figures.append(_fullest_second(ROWS // 10 if scale.quick else ROWS))
    return figures, details


def _rate(scale: Scale, messages: list[Message], policy: Mapping[str, Any], costs: list[dict[str, float]]) -> float:
    """Messages scheduled a second."""
    with server_for(scale) as running, Client(running.url) as client:
        if policy:
            change = Change("policy:bench", msgspec.json.encode(policy).decode())
            client.store.run(commands.set_policies([change], maker=MAKER))
        schedule_all(client, messages[:1])
        meter = CpuMeter(client=os.getpid(), server=running.pid)
        began = time.perf_counter()
        outcomes = client.schedule_many(messages)
        seconds = time.perf_counter() - began
        meter.end(len(messages))
        costs.append(meter.each())
        accepted(outcomes)
        return len(messages) / seconds


def _fullest_second(rows: int) -> Figure:
    """How many times the mean the fullest second of the window has; each table of rows goes as a task of Spark's does."""
    import pyarrow as pa

    from delayq.config import load_settings
    from delayq.spark.options import WriteOptions
    from delayq.spark.writing.handed import Handed
    from delayq.spark.writing.task import Job

    progress(f"a backfill of {rows:,} rows over ten minutes")
    at = (int(now()) + DAY) // 1000 * 1000
    with server() as running, closing(connect(running.url)) as connection:
        options = WriteOptions.parse({"topic": TOPICS[0], "window": str(MINUTES)})
        job = Job(options, Handed.of(load_settings(redis_url=running.url)))
        table = pa.table({"id": [f"order-{number}" for number in range(rows)], "expect_date": [at] * rows})
        done = job.write(table.to_batches(max_chunksize=100_000)).counts
        if done.scheduled < rows:
            raise BenchmarkError(f"{done.scheduled} of {rows} rows were scheduled")
        with connection.pipeline(transaction=False) as calls:
            for second in range(at, at + MINUTES, 1000):
                for queue in range(QUEUES):
                    calls.zcount(queue_keys(queue).queue, second, f"({second + 1000}")
            found = calls.execute()
    seconds = [sum(found[start : start + QUEUES]) for start in range(0, len(found), QUEUES)]
    if sum(seconds) != rows:
        raise BenchmarkError(f"{rows - sum(seconds)} rows are due outside of the window")
    mean = rows / len(seconds)
    # A tenth of the rows spreads less evenly by chance alone.
    goal = PEAK if rows == ROWS else None
    name = f"the fullest second of {rows:,} rows over ten minutes, beside the mean"
    return single(name, "times", [max(seconds) / mean], goal=goal, at_most=True)
