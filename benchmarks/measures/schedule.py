"""Scheduling in bulk: `Client.schedule_many` in one process, with a list of messages that are due within a day.

The limit is a plain socket that sends HSET and ZADD for the same messages, and another ZADD for each message with a key.

The cost of one call of the script that schedules one message: CPU of the server in packets of 100 calls. It is compared with
the smallest possible script, HSET and ZADD, with the same KEYS and ARGV.

One by one, each call waits for its answer. The figure is the CPU of the client alone. It is compared with redis-py's own
`evalsha` of a script with the HSET and the ZADD of such a message.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.backlog import accepted, schedule_all
from benchmarks.load.messages import DAY, LIMITS, QUEUES, TOPICS, make, spread
from benchmarks.results import Figure, Pair, paired
from benchmarks.running import limit
from benchmarks.running.processes import connect, server, server_for
from delayq import Client, Message
from delayq.domain.codec import due_head, encode
from delayq.store.commands import Command, schedule
from delayq.store.keys import KEYS, new_id
from delayq.store.scripts import load

MESSAGES: Final = 500_000
GOALS = {0: 0.9, 1: 0.7}
_KEYS = {0: "plain", 1: "one business key"}
ONE: Final = "one schedule script beside a minimal HSET + ZADD script, server CPU"
_MOST_TIMES: Final = 2.5
_MINIMAL: Final = """#!lua
redis.call('HSET', KEYS[3], ARGV[7], ARGV[8])
redis.call('ZADD', KEYS[2], ARGV[9], ARGV[7])
return {}"""
ONE_BY_ONE = "Client.schedule beside a bare EVALSHA, client CPU"
#: Calls of one measurement, and measurements of a run.
CALLS: Final = 1_000
STRETCHES: Final = 5
BARE_SCRIPT: Final = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])"


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure messages without and with a key, one script, and single calls."""
    figures = []
    details: dict[str, Any] = {}
    count = min(scale.messages, MESSAGES)
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        path = Path(folder, "commands")
        for keys, goal in GOALS.items():
            what = f"schedule, {_KEYS[keys]}"
            progress(f"{what}: preparing {count:,} messages")
            messages = list(make(count, spread(int(now()) + DAY, DAY), keys=keys))
            limit.write_schedule(path, messages)
            costs: list[dict[str, float]] = []
            pairs = in_pairs(
                what, scale.runs, partial(measure_limit, path, messages), partial(_ours, scale, messages, costs)
            )
            figures.append(paired(_KEYS[keys], "messages/s", pairs, goal=goal))
            details[f"{_KEYS[keys]}, CPU µs a message"] = costs
    if not scale.redis_url:
        figures.append(_one_script(scale))
    pairs = _one_by_one(scale)
    figures.append(paired(ONE_BY_ONE, "µs a call", pairs, goal=2.0, at_most=True))
    return figures, details


def _one_by_one(scale: Scale) -> list[Pair]:
    message = Message(topic=TOPICS[0], delay_time=DAY, body="x" * 200)
    content = limit.record(message)
    with server_for(scale) as running, Client(running.url) as client, closing(connect(running.url)) as bare:
        sha = bare.script_load(BARE_SCRIPT)

        def cpu(call: Callable[[int], object]) -> float:
            call(0)
            began = time.process_time()
            for number in range(CALLS):
                call(number)
            return (time.process_time() - began) / CALLS * 1e6

        def evalsha(number: int) -> object:
            return bare.evalsha(sha, 2, "delayq:{bare}:pool", "delayq:{bare}:queue", f"id {number}", content, number)

        return in_pairs(
            ONE_BY_ONE, scale.runs * STRETCHES, partial(cpu, evalsha), partial(cpu, lambda _: client.schedule(message))
        )


def measure_limit(path: Path, messages: list[Message]) -> float:
    """The messages/s of the limit, whose commands are in the file `path`."""
    with server() as running:
        return len(messages) / limit.feed(running.port, path, _replies(messages))


def _replies(messages: list[Message]) -> int:
    return sum(2 + len(message.keys) for message in messages)


def _ours(scale: Scale, messages: list[Message], costs: list[dict[str, float]]) -> float:
    with server_for(scale) as running, Client(running.url) as client:
        schedule_all(client, messages[:1])  # agrees on the layout and loads the script
        meter = CpuMeter(client=os.getpid(), server=running.pid)
        began = time.perf_counter()
        outcomes = client.schedule_many(messages)
        seconds = time.perf_counter() - began
        meter.end(len(messages))
        costs.append(meter.each())
        _check(running.url, outcomes, len(messages) + 1)
        return len(messages) / seconds


def _check(url: str, outcomes: list[Any], expected: int) -> None:
    accepted(outcomes)
    with closing(connect(url)) as connection:
        there = sum(connection.zcard(KEYS.queue(queue).queue) for queue in range(QUEUES))
    if there != expected:
        raise BenchmarkError(f"the queues have {there} messages instead of {expected}")


def _one_script(scale: Scale) -> Figure:
    commands = list(_single_calls(scale.messages // 50))
    scripts = {"limit": _MINIMAL, "ours": load("schedule").text}
    measures = {name: partial(_server_cost, text, commands) for name, text in scripts.items()}
    pairs = in_pairs(ONE, 2 * scale.runs + 1, measures["limit"], measures["ours"], swap=True)
    return paired(ONE, "µs a call", pairs, goal=_MOST_TIMES, at_most=True)


def _single_calls(count: int) -> Iterator[Command[Any]]:
    """Yield commands that each schedule one message in one queue; the last argument, the due time again, is a deadline for
    ours.
    """
    for message in make(count, spread(int(now()) + DAY, DAY)):
        due = message.expect_date or 0
        command = schedule(KEYS.queue(0), "a", [new_id()], [encode(message, LIMITS, due_head(due))])
        yield msgspec.structs.replace(command, args=(*command.args, due))


def _server_cost(script: str, commands: Sequence[Command[Any]]) -> float:
    """The CPU µs that the server takes for one call."""
    with server() as running, closing(connect(running.url)) as connection:
        sha = connection.script_load(script)
        meter = CpuMeter(server=running.pid)
        for first in range(0, len(commands), 100):
            calls = connection.pipeline(transaction=False)
            for command in commands[first : first + 100]:
                calls.evalsha(sha, len(command.keys), *command.keys, *command.args)
            calls.execute()
        meter.end(len(commands))
        return meter.each()["server"]
