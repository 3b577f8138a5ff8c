"""Brokers as targets: throughput compared with the broker's own client, lateness, and the effect of a hung broker on others.

Throughput: a backlog becomes due and one worker sends it through the general path until Redis is empty. The limit is the
rate of the broker's own Python client alone, in a process of its own. Both send the same messages: a body of 200 bytes, one
of eight topics, a tag and a business key. Id, due time, attempt and media type are headers or properties. The conversion
into the broker's form is part of the measured time. Both make the same promise and check the broker's reply to each message:

- Kafka: idempotent and acks=all
- RabbitMQ: persistent, mandatory and confirmed
- RocketMQ: a reply for each

The client alone has its messages in memory and no queue. The ratio shows the cost of everything else that delayq does, with
the broker and Redis on the same cores. Pairs are measured in turn, after the broker has reached its full speed (Java
compiles frequent code). Lateness: measured like `lateness`, at the broker's consumer. Hung: one broker is paused while its
messages are due; the figure is the lateness of another target's topic before and meanwhile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.brokers import NAMES, Broker, kit
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.load.traffic import DELAYS, PRODUCE, WARM_UP, Lateness, Plan, Traffic, lateness
from benchmarks.results import LEFT_OUT, Figure, paired, single
from benchmarks.running.processes import Handshake, python, server_for, worker
from delayq import Client
from testbed.errors import ServerMissing

THROUGHPUT: Final = {"kafka": 0.4, "rocketmq": 0.8, "rabbitmq": 0.8}
WARM_UPS: Final = 4
RATE: Final = 1_000
LATE: Final = 15.0
HUNG_TOPIC: Final = "order.cancel"
OTHER_TOPIC: Final = "payment.check"
OTHER_RATE: Final = 200
MORE_LATE: Final = 10.0


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure every installed broker; raises ServerMissing if there is none."""
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in NAMES:
        try:
            with kit(name).running([*TOPICS, *(_late_topic(number) for number in range(scale.runs))]) as broker:
                figures += _throughput(scale, name, broker, details)
                try:
                    figures += _lateness(scale, name, broker, details)
                except BenchmarkError as error:  # its consumer did not get all messages; the other figures still count
                    progress(f"{name}, lateness is not measured: {error}")
                    details[f"{name}, lateness is not measured"] = str(error)
                figures += _hung(scale, name, broker, details)
        except ServerMissing as error:
            progress(f"{name} is left out: {error}")
            left_out[name] = str(error)
    if not figures:
        raise ServerMissing(next(iter(left_out.values())))
    return figures, details | ({LEFT_OUT: left_out} if left_out else {})


def _route(name: str, match: str, url: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "match": match, "target": url, **more}


def _late_topic(number: int) -> str:
    """The topic of a run; each run has its own, so that its consumer reads from the beginning."""
    return f"late-{number}"


def _routes(*some: dict[str, Any]) -> str:
    return msgspec.json.encode(some).decode()


def _throughput(scale: Scale, name: str, broker: Broker, details: dict[str, Any]) -> list[Figure]:
    count = kit(name).quick if scale.quick else kit(name).messages
    costs: list[dict[str, float]] = []

    def alone() -> float:
        with python("-m", f"benchmarks.brokers.{name}", "alone", broker.url, str(count)) as process:
            process.wait(600)
            return count / _seconds(process.output())

    def ours() -> float:
        with (
            server_for(scale) as running,
            worker(running.url, routes=_routes(_route(name, "*", broker.url))) as process,
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
    return [paired(f"{name}, throughput beside its own client", "messages/s", pairs, goal=THROUGHPUT[name])]


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


def _lateness(scale: Scale, name: str, broker: Broker, details: dict[str, Any]) -> list[Figure]:
    runs = []
    for number in range(scale.runs):
        progress(f"{name}, lateness at {RATE:,}/s, run {number + 1}")
        runs.append(_late(scale, name, broker, 8.0, _late_topic(number)))
        progress(f"{name}, lateness: {runs[-1].consumer}")
    title = f"{name}, lateness at {RATE:,}/s"
    details[title] = msgspec.to_builtins(runs)
    return [
        single(f"{title}, p50", "ms", [one.consumer["p50"] for one in runs]),
        single(f"{title}, p99", "ms", [one.consumer["p99"] for one in runs], goal=LATE),
        single(f"{title}, early", "messages", [one.early for one in runs], goal=0),
    ]


def _late(scale: Scale, name: str, broker: Broker, seconds: float, topic: str) -> Lateness:
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server_for(scale, rewrites=True) as running,
        worker(running.url, routes=_routes(_route(name, "*", broker.url))),
    ):
        start = now() + 3000
        plan = Plan(running.url, (topic,), RATE, start, WARM_UP + seconds, DELAYS)
        reader = ("-m", f"benchmarks.brokers.{name}", "read", kit(name).source(broker), topic)
        with Traffic(plan, Path(folder), reader) as traffic:
            arrived, _ = traffic.wait()
    first = start + 1000 * WARM_UP
    return lateness([one for one in arrived if first <= one.due < first + 1000 * seconds])


def _hung(scale: Scale, name: str, broker: Broker, details: dict[str, Any]) -> list[Figure]:
    """Measure another target's topic before and while this broker hangs with due messages."""
    seconds = 5.0
    found: list[tuple[Lateness, Lateness]] = []
    for number in range(1, min(2, scale.runs) + 1):
        progress(f"{name} hung, run {number}")
        found.append(_beside_hung(scale, name, broker, seconds))
        progress(f"others: {found[-1][0].consumer['p99']} ms before, {found[-1][1].consumer['p99']} ms meanwhile")
    title = f"{name} hung, others at {OTHER_RATE}/s"
    details[title] = msgspec.to_builtins(found)
    return [
        single(f"{title}, p99 before", "ms", [before.consumer["p99"] for before, _ in found]),
        single(f"{title}, p99 meanwhile", "ms", [meanwhile.consumer["p99"] for _, meanwhile in found]),
        single(
            f"{title}, p99 more than before",
            "ms",
            [meanwhile.consumer["p99"] - before.consumer["p99"] for before, meanwhile in found],
            goal=MORE_LATE,
        ),
        single(f"{title}, early", "messages", [one.early + other.early for one, other in found], goal=0),
    ]


def _beside_hung(scale: Scale, name: str, broker: Broker, seconds: float) -> tuple[Lateness, Lateness]:
    routes = _routes(_route("hung", HUNG_TOPIC, broker.url), _route("others", "*", "redis+stream:", path="general"))
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server_for(scale, rewrites=True) as running,
        worker(running.url, routes=routes),
    ):
        start = now() + 3000
        whole = WARM_UP + 2 * seconds
        paused_at = start + 1000 * (WARM_UP + seconds)
        others = Plan(running.url, (OTHER_TOPIC,), OTHER_RATE, start, whole, DELAYS)
        its_own = Plan(running.url, (HUNG_TOPIC,), RATE, start, whole, DELAYS)
        handshake = Handshake(Path(folder) / "its own plan")
        producer = python(*PRODUCE, running.url, handshake.argument)
        with Traffic(others, Path(folder)) as traffic, producer:
            handshake.send(msgspec.json.encode(its_own))
            sleep_until(paused_at)
            broker.pause()
            try:
                arrived, _ = traffic.wait()
            finally:
                broker.resume()
    first = start + 1000 * WARM_UP
    before = [one for one in arrived if first <= one.due < paused_at]
    meanwhile = [one for one in arrived if paused_at <= one.due < paused_at + 1000 * seconds]
    return lateness(before), lateness(meanwhile)
