"""The controls: what operators do, and what it costs, part by part. `--part NAME` measures one part.

The parts `holding`, `topics`, `limits` and `streams` are in `controls_waiting`. `reading` and `search` are in
`controls_looking`, two others here.

Audit: bulk cancels, 500 in a script, with an audit entry and without. Rates are by the clock; the CPU is the server's for
each message.

Scheduling: `Client.schedule_many` with windows and policies, and without. Both sides schedule the same messages, already
spread over a day. Another ten minutes do not change the server's work, so the rates differ by the client's work alone. The
details have the CPU of both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.backlog import accepted, schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures import controls_looking, controls_waiting
from benchmarks.results import NOTES, Figure, Pair, paired
from benchmarks.running.processes import server, server_for
from delayq import Client, Message, Scheduled
from delayq.client.audit import By
from delayq.store import commands
from delayq.store.commands import Change
from delayq.store.keys import KEYS

#: Messages, goal and pairs of the audit.
CANCELLED: Final = 100_000
AUDIT_GOAL: Final = 0.85
AUDIT_PAIRS: Final = 7
BY: Final = By(actor="shop", key="5f3a9c01d2e4", address="10.0.0.5", reason="the shop is closed today")
#: Messages, pairs, ms of the window, and goal of scheduling.
SCHEDULED: Final = 200_000
SCHEDULING_PAIRS: Final = 9
MINUTES: Final = 600_000
SCHEDULING_GOAL: Final = 0.95


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
    """Compare the rates with and without windows and policies."""
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
    return figures, details


def _rate(scale: Scale, messages: list[Message], policy: Mapping[str, Any], costs: list[dict[str, float]]) -> float:
    """The messages scheduled a second."""
    with server_for(scale) as running, Client(running.url) as client:
        if policy:
            change = Change("policy:bench", msgspec.json.encode(policy).decode())
            client.store.run(commands.set_policies(KEYS, [change]))
        schedule_all(client, messages[:1])
        meter = CpuMeter(client=os.getpid(), server=running.pid)
        began = time.perf_counter()
        outcomes = client.schedule_many(messages)
        seconds = time.perf_counter() - began
        meter.end(len(messages))
        costs.append(meter.each())
        accepted(outcomes)
        return len(messages) / seconds


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
