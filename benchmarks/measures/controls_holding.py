"""A paused topic: how fast its due messages go aside, how late others are meanwhile, and how fast it all comes back.

Messages of one topic fall due together while it is paused; other topics get 200 a second. When all stand aside the topic is
resumed. Both rates are set beside draining as many into the same null target that were never paused, in turns. By default 200,000
messages; `--pending 1000000` makes it a million.
"""

from __future__ import annotations

import tempfile
import time
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
from benchmarks.measures.burst import BEFORE_MS, DELAYS, OTHERS, TOPIC
from benchmarks.measures.burst import RATE as OTHERS_RATE
from benchmarks.measures.drain import RATE, backlog
from benchmarks.measures.lateness import Lateness, Traffic, lateness
from benchmarks.results import Figure, Pair, paired, single
from benchmarks.running.processes import server, worker
from delayq import Client
from delayq.policies import Policy

__all__ = ["run"]

ROUTES: Final = f'[{{"name":"null","match":"{TOPIC}","target":"null:"}},{{"name":"streams"}}]'
MODULE: Final = "benchmarks.running.worker_with_null"
#: Messages/s at which they are taken to go aside at least, and ms after a resume from which on its rate counts.
SLOWEST: Final = 15_000
RAMP_MS: Final = 1_000


class Held(msgspec.Struct, frozen=True):
    """Rates at which messages went aside and came back, the latter from RAMP_MS on and as a whole."""

    aside: float
    back: float
    back_whole: float
    others: Lateness


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure pauses."""
    count, pauses = scale.pending or backlog(scale), list[Held]()
    measures: dict[str, Callable[[], float]] = {
        "limit": partial(_drain, count),
        "set": partial(_drain, count, other_policies=True),
        "delayq": lambda: _hold(count, pauses).aside,
    }
    rounds = in_turns("controls, holding", scale.runs, measures, swap=True, enough=sure(scale.runs))
    drains = [found["limit"] for found in rounds]
    late = [one.others for one in pauses]
    unused = [Pair(found["set"], found["limit"]) for found in rounds]
    back = [Pair(one.back, drained) for one, drained in zip(pauses, drains, strict=True)]
    whole = [Pair(one.back_whole, drained) for one, drained in zip(pauses, drains, strict=True)]
    return [
        paired("held aside, beside draining", RATE, pairs_of(rounds), goal=0.5),
        paired("resumed, from 1 s on, beside draining", RATE, back, goal=0.9),
        paired("resumed, as a whole, beside draining", RATE, whole),
        paired("drained where others have a policy and a pause, beside none", RATE, unused, goal=0.98),
        single("others while messages go aside, p50", "ms", [one.consumer["p50"] for one in late]),
        single("others while messages go aside, p99", "ms", [one.consumer["p99"] for one in late], goal=50),
        single("others while messages go aside, early", "messages", [one.early for one in late], goal=0),
    ], {"pauses": msgspec.to_builtins(pauses)}


def _drain(count: int, *, other_policies: bool = False) -> float:
    with (
        server() as running,
        worker(running.url, MODULE, ROUTES),
        Client(running.url) as operator,
        closing(Watch(running.url, ())) as watch,
    ):
        if other_policies:
            operator.pause("nobody.*")
            operator.put_policy(Policy(name="some", match="some.*", max_attempts=3))
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
            name = f"h:{TOPIC}"
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
        operator.resume(TOPIC)
        began = now()
        time.sleep(min(RAMP_MS, 500 * count / SLOWEST) / 1000)
        then, left = now(), watch.pending()
        whole = watch.pool_emptied(count, int(began))
    after = whole - (then - began) / 1000
    one = Held(1000 * count / (end - moment), left / after if left else count / whole, count / whole, lateness(others))
    pauses.append(one)
    return one
