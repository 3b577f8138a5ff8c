"""One of several things that are measured at the same time, each in slots of its own: `side PLAN`, with a JSON of `Plan`.

It runs by the Python of the checkout that it measures, with that one's packages: so it needs only what has been in them for
long. Prints a JSON of what a message of each slot cost: CPU µs of the worker and of Redis; and of a backlog also messages/s, as
a whole and from RAMP_MS on.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from benchmarks.harness import CpuMeter, now, wait_for
from benchmarks.load.backlog import Watch, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.running.processes import Process, server, worker
from delayq import Client
from delayq.store.keys import ParkedSet

__all__ = ["ASIDE", "Plan", "Slot", "main"]

#: Scheduled so many at a time, each time into one queue.
TOGETHER = 100
#: ms at the end of a slot in which nothing is due any more.
REST = 60
#: ms of a backlog before which its rate counts only as a part of the whole.
RAMP_MS = 1_000
#: Messages a second that go aside at least.
ASIDE = 10_000


class Slot(msgspec.Struct, frozen=True):
    """`count` messages with so many business `keys` over `length` ms, with so much `slack`; or as a backlog if it `drains`,
    perhaps into a `null` target."""

    count: int
    length: int = 1_000
    drains: bool = False
    null: bool = False
    slack: int = 0
    keys: int = 0


class Plan(msgspec.Struct, frozen=True):
    """Slots that begin at `starts` (Unix ms), where topics have these `pauses` and `policies`. `held`: each backlog is paused and
    stands aside until its slot begins."""

    starts: list[int]
    slot: Slot
    pauses: list[str] = []
    policies: list[dict[str, Any]] = []
    held: bool = False


def main() -> None:
    """Measure, and print what was found."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    slot = plan.slot
    module, routes = "workers", f'[{{"name":"streams","slack":{slot.slack}}}]'
    if slot.null:
        module, routes = "benchmarks.running.worker_with_null", NULL_ROUTES
    with (
        server() as running,
        worker(running.url, module, routes) as process,
        Client(running.url) as operator,
        closing(Watch(running.url)) as watch,
    ):
        for match in plan.pauses + ([f"held.{number}" for number in range(len(plan.starts))] if plan.held else []):
            operator.pause(match)
        if plan.policies:
            _put(running.url, routes, plan.policies)
        with Client(running.url) as client:  # it has read the policies as they are
            _schedule(plan, client)
        if plan.held:
            wait_for("the backlogs to go aside", lambda: _aside(plan, watch), seconds=_left(min(plan.starts)))
        found = list((_drained if slot.drains else _spent)(plan, watch, operator, process, running.pid))
        process.check()
    print(msgspec.json.encode(found).decode(), flush=True)


def _put(url: str, routes: str, policies: list[dict[str, Any]]) -> None:
    """By a client that knows what its worker's routes can hold to."""
    from delayq.policies import Policy  # a checkout from before has neither
    from delayq.routes import load_routes

    with Client(url, routes=load_routes(routes)) as operator:
        for policy in policies:
            operator.put_policy(msgspec.convert(policy, Policy))


def _schedule(plan: Plan, client: Client) -> None:
    slot = plan.slot
    span = span_of(slot.count) if slot.drains else slot.length - REST - slot.slack
    by = min(plan.starts)
    if plan.held:
        by -= 1_000 + 1_000 * slot.count * len(plan.starts) // ASIDE
    dues = [by if plan.held else start for start in plan.starts]
    messages = [
        message
        for number, due in enumerate(dues)
        for message in make(
            slot.count,
            spread(due, span),
            keys=slot.keys,
            seed=number,
            topics=(f"held.{number}",) if plan.held else TOPICS,
        )
    ]
    together = len(messages)
    if not slot.drains:  # all queues get some of every slot
        random.Random(1).shuffle(messages)
        together = TOGETHER
    for first in range(0, len(messages), together):
        schedule_ahead(client, messages[first : first + together], by)


def _aside(plan: Plan, watch: Watch) -> bool:
    return (
        sum(watch.parked(ParkedSet.of_topic(f"held.{number}")) for number in range(len(plan.starts))) == watch.pending()
    )


def _left(moment: int) -> float:
    return (moment - now()) / 1_000


def _spent(plan: Plan, _: Watch, __: Client, process: Process, server_pid: int | None) -> Iterator[dict[str, float]]:
    for start in plan.starts:
        sleep_until(start)
        meter = CpuMeter(worker=process.pid, Redis=server_pid)
        sleep_until(start + plan.slot.length)
        meter.end(plan.slot.count)
        yield meter.each()


def _drained(
    plan: Plan, watch: Watch, operator: Client, process: Process, server_pid: int | None
) -> Iterator[dict[str, float]]:
    """A backlog is drained when it has left the pool, which is looked at every 10 ms."""
    count = plan.slot.count
    left = count * len(plan.starts)
    for number, start in enumerate(plan.starts):
        sleep_until(start)
        meter = CpuMeter(worker=process.pid, Redis=server_pid)
        left -= count
        if plan.held:
            operator.resume(f"held.{number}")
        ramped, later = float(start), count
        while (pending := watch.pending()) > left:
            if ramped == start and now() >= start + RAMP_MS:
                ramped, later = now(), pending - left
            time.sleep(0.01)
        end = now()
        meter.end(count)
        yield meter.each() | {"rate": 1_000 * count / (end - start), "later": 1_000 * later / (end - ramped)}


if __name__ == "__main__":
    main()
