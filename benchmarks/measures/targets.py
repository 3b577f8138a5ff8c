"""Brokers as targets: throughput compared with the broker's own client.

A backlog becomes due and one worker sends it through the general path until Redis is empty. The limit is the
rate of the broker's own Python client alone, in a process of its own. Both send the same messages: a body of 200 bytes, one
of eight topics, a tag and a business key. Id, due time, attempt and media type are headers or properties. The conversion
into the broker's form is part of the measured time. Both make the same promise and check the broker's reply to each message:

- Kafka: idempotent and acks=all
- RabbitMQ: persistent, mandatory and confirmed
- RocketMQ: a reply for each

The client alone has its messages in memory and no queue. The ratio shows the cost of everything else that delayq does, with
the broker and Redis on the same cores. Pairs are measured in turn, after the broker has reached its full speed (Java
compiles frequent code).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.brokers import NAMES, kit
from benchmarks.harness import CpuMeter, Scale, in_pairs, progress
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.results import LEFT_OUT, Figure, paired
from benchmarks.running.processes import python, server_for, worker
from delayq import Client
from testbed.errors import ServerMissing

THROUGHPUT: Final = {"kafka": 0.4, "rocketmq": 0.8, "rabbitmq": 0.8}
WARM_UPS: Final = 4


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure every installed broker; raises ServerMissing if there is none."""
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in NAMES:
        try:
            with kit(name).running(TOPICS) as url:
                figures.append(_throughput(scale, name, url, details))
        except ServerMissing as error:
            progress(f"{name} is left out: {error}")
            left_out[name] = str(error)
    if not figures:
        raise ServerMissing(next(iter(left_out.values())))
    return figures, details | ({LEFT_OUT: left_out} if left_out else {})


def _throughput(scale: Scale, name: str, url: str, details: dict[str, Any]) -> Figure:
    count = kit(name).quick if scale.quick else kit(name).messages
    costs: list[dict[str, float]] = []
    routes = msgspec.json.encode([{"name": name, "match": "*", "target": url}]).decode()

    def alone() -> float:
        with python("-m", f"benchmarks.brokers.{name}", url, str(count)) as process:
            process.wait(600)
            return count / _seconds(process.output())

    def ours() -> float:
        with (
            server_for(scale) as running,
            worker(running.url, routes=routes) as process,
            Client(running.url) as client,
            closing(Watch(running.url)) as watch,
        ):
            moment = in_time(count)
            schedule_ahead(client, make(count, spread(moment, span_of(count)), keys=1), moment)
            sleep_until(moment - 5)
            meter = CpuMeter(server=running.pid, worker=process.pid)
            seconds = watch.pool_emptied(count, moment)
            meter.end(count)
            costs.append(meter.each())
            process.check()
            return count / seconds

    _warm_up(name, alone)
    pairs = in_pairs(f"{name}, throughput", scale.runs, alone, ours)
    details[f"{name}, CPU µs a message"] = costs
    return paired(f"{name}, throughput beside its own client", "messages/s", pairs, goal=THROUGHPUT[name])


def _seconds(output: str) -> float:
    """The last number in the output of a client; some clients print errors after it, while they shut down."""
    for line in reversed(output.splitlines()):
        with suppress(ValueError):
            return float(line)
    raise BenchmarkError(f"the client alone printed:\n{output}")


def _warm_up(name: str, alone: Callable[[], float]) -> None:
    """Send until the rate stops rising: a broker that has just started is several times slower."""
    best = 0.0
    for _ in range(WARM_UPS):
        rate = alone()
        progress(f"{name}: warming up, {rate:,.0f}")
        if rate < 1.1 * best:
            return
        best = max(best, rate)
