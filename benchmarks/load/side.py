"""A side of a measurement; several sides run at the same time, each in its own slots.

`side PLAN FILE` takes a JSON of `Plan`, and the file of a `Handshake` with the start time of all sides.

The Python of the measured checkout runs it, with the packages of that checkout. So `changes` uses only names that the other
checkout has, too. It prints a JSON with the cost of a message in each slot, in CPU µs of the worker and of
Redis. A backlog also has messages/s, in total and from RAMP_MS on.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import CpuMeter, now, wait_for
from benchmarks.load.backlog import Watch, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.running.processes import Handshake, Process, server, worker
from delayq import Client

#: Messages of one call, which go into one queue.
TOGETHER = 100
#: ms at the end of a slot in which no message is due.
REST = 60
#: ms after the start of a backlog from which its later rate counts.
RAMP_MS = 1_000
#: Messages a second that are parked at least.
PARKED = 10_000


class Slot(msgspec.Struct, frozen=True):
    """`count` messages over `length` ms, each with this many business `keys`, on a route with this `slack`.

    With `drains` they are a backlog that is due at once. With `null` they go into a null target. `topics` is the number of
    their topics; 0 stands for the usual ones.
    """

    count: int
    length: int = 1_000
    drains: bool = False
    null: bool = False
    slack: int = 0
    keys: int = 0
    topics: int = 0


class Plan(msgspec.Struct, frozen=True):
    """Slots that begin at `starts` (ms after all sides begin), under these `policies`.

    With `held` each backlog is paused, and parked until its slot begins.
    """

    starts: list[int]
    slot: Slot
    policies: list[dict[str, Any]] = []
    held: bool = False


def main() -> None:
    """Measure, and print the results."""
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
        for number in range(len(plan.starts) if plan.held else 0):
            operator.pause(f"held.{number}")
        if plan.policies:
            _put(running.url, routes, plan.policies)
        begin = int(Handshake(Path(sys.argv[2])).wait())
        plan = msgspec.structs.replace(plan, starts=[begin + start for start in plan.starts])
        with Client(running.url) as client:  # it reads the policies when it starts
            _schedule(plan, client)
        if plan.held:
            wait_for("parked backlogs", lambda: _parked(plan, watch), seconds=_left(min(plan.starts)))
        found = list((_drained if slot.drains else _spent)(plan, watch, operator, process, running.pid))
        process.check()
    print(msgspec.json.encode(found).decode(), flush=True)


def _put(url: str, routes: str, policies: list[dict[str, Any]]) -> None:
    """Put the policies with a client that knows the worker's routes."""
    from delayq.domain.policies import Policy  # old checkouts do not have it
    from delayq.domain.routes import load_routes

    with Client(url, routes=load_routes(routes)) as operator:
        for policy in policies:
            operator.put_policy(msgspec.convert(policy, Policy))


def _schedule(plan: Plan, client: Client) -> None:
    slot = plan.slot
    span = span_of(slot.count) if slot.drains else slot.length - REST - slot.slack
    by = min(plan.starts)
    if plan.held:
        by -= 1_000 + 1_000 * slot.count * len(plan.starts) // PARKED
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
    if slot.topics:
        messages = [
            msgspec.structs.replace(message, topic=f"many.{number % slot.topics}")
            for number, message in enumerate(messages)
        ]
    together = len(messages)
    if not slot.drains:  # so that every slot has messages of all queues
        random.Random(1).shuffle(messages)
        together = TOGETHER
    for first in range(0, len(messages), together):
        schedule_ahead(client, messages[first : first + together], by)


def _parked(plan: Plan, watch: Watch) -> bool:
    from delayq.store.keys import ParkedSet  # old checkouts do not have it

    names = (ParkedSet.of_topic(f"held.{number}") for number in range(len(plan.starts)))
    return sum(map(watch.parked, names)) == watch.pending()


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
    """Measure backlogs. A backlog is drained when it has left the pool, which is read every 10 ms."""
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
