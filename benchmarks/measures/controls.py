"""The controls: what operators do, and what it costs, part by part. `--part NAME` measures one part.

The parts `holding`, `topics`, `limits` and `streams` are in `controls_waiting`. `reading` and `search` are in
`controls_looking`, two others here.

Audit: bulk cancels, 500 in a script, with an audit entry and without. Rates are by the clock; the CPU is the server's for
each message.

Scheduling: `Client.schedule_many` with windows and policies, and without. Both sides schedule the same messages, already
spread over a day. Another ten minutes do not change the server's work, so the rates differ by the client's work alone. The
details have the CPU of both. A million rows with the same due time, spread over ten minutes like a backfill's, show how even
a window is. Redis counts them second by second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.backlog import accepted, schedule_all
from benchmarks.load.messages import DAY, QUEUES, TOPICS, make, spread
from benchmarks.measures import controls_looking, controls_waiting
from benchmarks.results import NOTES, Figure, Pair, paired, single
from benchmarks.running.processes import connect, server, server_for
from delayq import Client, Message, Scheduled
from delayq.client.audit import By
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import queue_keys

#: Messages, goal and pairs of the audit.
CANCELLED: Final = 100_000
AUDIT_GOAL: Final = 0.85
AUDIT_PAIRS: Final = 7
BY: Final = By(actor="shop", key="5f3a9c01d2e4", address="10.0.0.5", reason="the shop is closed today")
#: Messages, pairs, ms of the window, rows, and goals of scheduling.
SCHEDULED: Final = 200_000
SCHEDULING_PAIRS: Final = 9
MINUTES: Final = 600_000
ROWS: Final = 1_000_000
SCHEDULING_GOAL: Final = 0.95
PEAK: Final = 1.2


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all parts, or the selected one."""
    if scale.part not in ("", *PARTS):
        raise BenchmarkError(f"the parts of controls are {', '.join(PARTS)}")
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    for name, measure in PARTS.items():
        if scale.part in ("", name):
            progress(f"controls, {name}")
            found, more = measure(scale)
            figures += found
            details |= more | {NOTES: [*details.get(NOTES, ()), *more.get(NOTES, ())]}
    return figures, details


def audit(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Compare the cancels a second with an audit entry with those without."""
    count = CANCELLED // 5 if scale.quick else CANCELLED
    costs: dict[str, list[float]] = {"without": [], "with": []}
    pairs = in_pairs(
        "cancels with an entry in the audit",
        3 if scale.quick else AUDIT_PAIRS,
        partial(_cancelled, count, None, costs["without"]),
        partial(_cancelled, count, BY, costs["with"]),
        swap=True,
    )
    cpu = [Pair(ours, limit) for ours, limit in zip(costs["with"], costs["without"], strict=True)]
    return [
        paired("cancels with an entry in the audit, beside those without", "messages/s", pairs, goal=AUDIT_GOAL),
        paired("the server's CPU of these", "µs a message", cpu, goal=round(1 / AUDIT_GOAL, 2), at_most=True),
    ], {}


def _cancelled(count: int, by: By | None, costs: list[float]) -> float:
    """The messages cancelled a second."""
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


def scheduling(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Compare the rates with and without windows and policies; measure the fullest second of a backfill."""
    count = SCHEDULED // 10 if scale.quick else SCHEDULED
    plain = list(make(count, spread(int(now()) + DAY, DAY)))
    spread_out = [msgspec.structs.replace(message, window=MINUTES) for message in plain]
    measures: dict[str, tuple[list[Message], dict[str, Any], float | None]] = {
        "schedule with a window, beside without": (spread_out, {}, SCHEDULING_GOAL),
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
            3 if scale.quick else SCHEDULING_PAIRS,
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
    """The messages scheduled a second."""
    with server_for(scale) as running, Client(running.url) as client:
        if policy:
            change = Change("policy:bench", msgspec.json.encode(policy).decode())
            client.store.run(commands.set_policies([change]))
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
    """The fullest second of the window divided by the mean; the rows are scheduled like a task of Spark does."""
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
    # A tenth of the rows is less evenly spread by chance alone.
    goal = PEAK if rows == ROWS else None
    name = f"the fullest second of {rows:,} rows over ten minutes, beside the mean"
    return single(name, "times", [max(seconds) / mean], goal=goal, at_most=True)


#: Each part: its figures and details.
PARTS: Final[Mapping[str, Callable[[Scale], tuple[list[Figure], dict[str, Any]]]]] = {
    "holding": controls_waiting.holding,
    "topics": controls_waiting.topics,
    "limits": controls_waiting.limits,
    "streams": controls_waiting.streams,
    "reading": controls_looking.reading,
    "audit": audit,
    "search": controls_looking.search,
    "scheduling": scheduling,
}
