"""One of two checkouts that are measured at the same time, each in slots of its own: `side PLAN`, with a JSON of `Plan`.

It runs by the Python of the checkout that it measures, with that one's packages: so it needs only what has been in them for
long. Prints a JSON of what a message of each slot cost: CPU µs of the worker and of Redis, and messages/s if it drains.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import msgspec

from benchmarks.harness import CpuMeter, now
from benchmarks.load.backlog import Watch, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import make, spread
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.running.processes import Process, server, worker
from delayq import Client

__all__ = ["Plan", "main"]

#: Scheduled so many at a time, each time into one queue.
TOGETHER = 100
#: ms at the end of a slot in which nothing is due any more.
REST = 60


class Plan(msgspec.Struct, frozen=True):
    """Slots that begin at `starts` (Unix ms) and last `length` ms, each with `count` messages: over its time, or as a backlog."""

    starts: list[int]
    length: int
    count: int
    drains: bool = False
    null: bool = False
    slack: int = 0


def main() -> None:
    """Measure, and print what was found."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    module, routes = "workers", f'[{{"name":"streams","slack":{plan.slack}}}]'
    if plan.null:
        module, routes = "benchmarks.running.worker_with_null", NULL_ROUTES
    with (
        server() as running,
        worker(running.url, module, routes) as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        span = span_of(plan.count) if plan.drains else plan.length - REST - plan.slack
        dues = (spread(start, span) for start in plan.starts)
        messages = [message for seed, due in enumerate(dues) for message in make(plan.count, due, seed=seed)]
        together = len(messages)
        if not plan.drains:  # all queues get some of every slot
            random.Random(1).shuffle(messages)
            together = TOGETHER
        for first in range(0, len(messages), together):
            schedule_ahead(client, messages[first : first + together], min(plan.starts))
        found = list((_drained if plan.drains else _spent)(plan, watch, process, running.pid))
        process.check()
    print(msgspec.json.encode(found).decode(), flush=True)


def _spent(plan: Plan, _: Watch, process: Process, server_pid: int | None) -> Iterator[dict[str, float]]:
    for start in plan.starts:
        sleep_until(start)
        meter = CpuMeter(worker=process.pid, Redis=server_pid)
        sleep_until(start + plan.length)
        meter.end(plan.count)
        yield meter.each()


def _drained(plan: Plan, watch: Watch, process: Process, server_pid: int | None) -> Iterator[dict[str, float]]:
    """A backlog is drained when it has left the pool, which is looked at every 10 ms."""
    left = plan.count * len(plan.starts)
    for start in plan.starts:
        sleep_until(start)
        meter = CpuMeter(worker=process.pid, Redis=server_pid)
        left -= plan.count
        while watch.pending() > left:
            time.sleep(0.01)
        seconds = (now() - start) / 1_000
        meter.end(plan.count)
        yield meter.each() | {"rate": plan.count / seconds}


if __name__ == "__main__":
    main()
