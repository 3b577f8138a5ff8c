"""A paused topic: how fast its due messages go aside, how late others are meanwhile, and how fast it all comes back.

Messages of one topic fall due together while it is paused; other topics get 200 a second. That rate is set beside draining as
many into the same null target that were never paused, in turns. By default 200,000 messages; `--pending 1000000` makes it a
million. Backlogs that are resumed are set beside others that drain at the same time, slot by slot; so are those that drain where
other topics have a pause and a policy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import Scale, in_turns, now, pairs_of, sure, wait_for
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until
from benchmarks.load.messages import make, spread
from benchmarks.load.producer import Plan
from benchmarks.load.side import Slot
from benchmarks.measures.burst import BEFORE_MS, DELAYS, OTHERS, TOPIC
from benchmarks.measures.burst import RATE as OTHERS_RATE
from benchmarks.measures.drain import RATE, backlog
from benchmarks.measures.lateness import Lateness, Traffic, lateness
from benchmarks.results import Figure, paired, single
from benchmarks.running.processes import server, worker
from benchmarks.slots import NULL_BACKLOG, Kind, Side, compared, costs, in_slots, rate, rates
from delayq import Client
from delayq.policies import Policy
from delayq.store.keys import ParkedSet

__all__ = ["run"]

ROUTES: Final = f'[{{"name":"null","match":"{TOPIC}","target":"null:"}},{{"name":"streams"}}]'
MODULE: Final = "benchmarks.running.worker_with_null"
#: Messages/s at which they are taken to go aside at least.
SLOWEST: Final = 15_000
RESUMED: Final = Kind("resumed", 2, Slot(100_000, 5_500, drains=True, null=True))
RESUMED_QUICK: Final = Kind("resumed", 1, Slot(30_000, 2_500, drains=True, null=True))
RESUMED_INTO_STREAMS: Final = Kind("resumed into Redis Streams", 2, Slot(60_000, 3_500, drains=True))
OTHERS_SET: Final = Kind("drained where others have a policy and a pause", 6, NULL_BACKLOG)
SET: Final = Side(pauses=("nobody.*",), policies=(Policy(name="some", match="some.*", max_attempts=3),))


class Held(msgspec.Struct, frozen=True):
    """The rate at which messages went aside, and how late others were meanwhile."""

    aside: float
    others: Lateness


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure pauses."""
    count, pauses = scale.pending or backlog(scale), list[Held]()
    measures: dict[str, Callable[[], float]] = {
        "limit": partial(_drain, count),
        "delayq": lambda: _hold(count, pauses).aside,
    }
    rounds = in_turns("controls, holding", scale.runs, measures, swap=True, enough=sure(scale.runs))
    late = [one.others for one in pauses]
    sides = {"limit": Side(), "held": Side(held=True)}
    back = in_slots(RESUMED_QUICK if scale.quick else RESUMED, sides, scale.runs)
    streams = in_slots(RESUMED_INTO_STREAMS, sides, 1)
    unused = in_slots(OTHERS_SET, {"limit": Side(), "set": SET}, scale.runs)
    name = f"{OTHERS_SET.name}, beside none"
    return [
        paired("held aside, beside draining", RATE, pairs_of(rounds), goal=0.5),
        compared(
            "resumed, from 1 s on, beside draining", RATE, _later, back["held"], back["limit"], its=rate, goal=0.9
        ),
        rates("resumed, as a whole, beside draining", back["held"], back["limit"]),
        rates(f"{RESUMED_INTO_STREAMS.name}, beside draining", streams["held"], streams["limit"]),
        rates(name, unused["set"], unused["limit"], goal=0.98),
        costs(name, unused["set"], unused["limit"]),
        single("others while messages go aside, p50", "ms", [one.consumer["p50"] for one in late]),
        single("others while messages go aside, p99", "ms", [one.consumer["p99"] for one in late], goal=50),
        single("others while messages go aside, early", "messages", [one.early for one in late], goal=0),
    ], {"pauses": msgspec.to_builtins(pauses)}


def _later(slot: dict[str, float]) -> float:
    return slot["later"]


def _drain(count: int) -> float:
    with (
        server() as running,
        worker(running.url, MODULE, ROUTES),
        closing(Watch(running.url, ())) as watch,
    ):
        moment = in_time(count)
        _schedule(running.url, count, moment, moment)
        sleep_until(moment - 5)
        return count / watch.pool_emptied(count, moment)


def _schedule(url: str, count: int, due: int, by: int) -> None:
    """By a client that has read the policies as they are now."""
    with Client(url) as client:
        schedule_ahead(client, make(count, spread(due, 1), topics=(TOPIC,)), by)


def _hold(count: int, pauses: list[Held]) -> Held:
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url, MODULE, ROUTES) as process,
        Client(running.url) as operator,
        closing(Watch(running.url, OTHERS)) as watch,
    ):
        operator.pause(TOPIC)
        moment = in_time(count) + BEFORE_MS
        plan = Plan(running.url, OTHERS, OTHERS_RATE, moment - BEFORE_MS, BEFORE_MS / 1000 + count / SLOWEST, DELAYS)
        _schedule(running.url, count, moment, moment - BEFORE_MS)
        with Traffic(plan, Path(folder)) as traffic:
            sleep_until(moment - 5)
            name = ParkedSet.of_topic(TOPIC)
            wait_for(
                f"{count:,} messages to go aside",
                lambda: watch.parked(name) >= count,
                seconds=30 + count / 5_000,
                pause=0.02,
            )
            end = now()
            arrived, _ = traffic.wait()
        others = [one for one in arrived if moment <= one.due <= end]
        process.check()
    one = Held(1000 * count / (end - moment), lateness(others))
    pauses.append(one)
    return one
