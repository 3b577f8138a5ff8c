"""Consuming: what waiting receivers cost, how soon a message reaches them, and how fast consumers acknowledge.

- Waiting: 1,000 receivers wait over HTTP on one API, for eight topics and 30 s each, again and again. Nothing falls due. One
  figure is the CPU time of the API and the server, the other the commands to the server. The use of an idle API and worker
  is subtracted.
- From due time to answer: 64 receivers wait over HTTP, and messages fall due at 100/s. The messages of the last answer are
  acknowledged by the next call. One primary, then a Redis Cluster of three.
- Acknowledging over HTTP: 100 messages with each call on 16 connections. The limit is scheduling of 100 messages with each
  call, in turn.
- The Python consumer on Redis receives 1,000 messages with each call and acknowledges the last ones with it. The limit is
  beanstalkd with its Go client and 16 connections. Both consume messages that were due before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress, wait_for
from benchmarks.load.backlog import sleep_until
from benchmarks.load.http_load import Load, post_each
from benchmarks.load.messages import DAY, TOPICS, make, spread
from benchmarks.load.receivers import RECEIVE
from benchmarks.load.traffic import WARM_UP, Lateness, Plan, Traffic, lateness
from benchmarks.measures.footprint import count_requests
from benchmarks.measures.http import BATCH, write_batches, write_lines
from benchmarks.measures.peers import PACE, SPARE_MS, whole_second
from benchmarks.peers import OURS, PEERS, Peer
from benchmarks.results import LEFT_OUT, Figure, paired, single
from benchmarks.running.groups import cluster
from benchmarks.running.processes import api, connect, python, server, worker
from delayq import Client
from testbed.errors import ServerMissing

__all__ = ["run"]

WAITING: Final = 1_000
MOST_OF_A_CORE: Final = 3.0
MOST_REQUESTS: Final = 20.0
RECEIVERS: Final = 64
RATE: Final = 100
DELAYS: Final = (500, 1_500)
P99_MS: Final = {"one primary": 10.0, "a Redis Cluster": 200.0}
CONNECTIONS: Final = 16
ACK_GOAL: Final = 0.3
BEANSTALKD_GOAL: Final = 1.2
TOPIC: Final = TOPICS[0]
GROUP: Final = "bench"


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure waiting receivers, the time to an answer, acknowledgements and the Python consumer."""
    details: dict[str, Any] = {}
    figures = [*_waiting(scale), *_to_the_answer(scale, details), _acknowledging(scale)]
    try:
        figures.append(_consuming(scale))
    except ServerMissing as error:
        details[LEFT_OUT] = {"the Python consumer beside beanstalkd": str(error)}
    return figures, details


@contextmanager
def _service(url: str) -> Iterator[tuple[int, int]]:
    """A worker and an API; the process id of the API, and its port."""
    with worker(url) as process, api(url) as (found, port):
        yield found.pid, port
        process.check()


def _waiting(scale: Scale) -> list[Figure]:
    seconds = 4.0 if scale.quick else 10.0
    with server() as running, _service(running.url) as (pid, port), tempfile.TemporaryDirectory() as folder:
        time.sleep(3)

        def used() -> tuple[dict[str, float], float]:
            meter = CpuMeter(api=pid, server=running.pid)
            time.sleep(seconds)
            meter.end(1)
            cpu = {name: 100 * one / seconds for name, one in meter.seconds().items()}
            return cpu, count_requests(running.url, seconds) / seconds

        progress("consume: an idle API")
        idle, idle_requests = used()
        path = Path(folder) / "all wait"
        words = (f"http://127.0.0.1:{port}", str(WAITING), ",".join(TOPICS), "1", str(path))
        with python(*RECEIVE, *words) as process:
            wait_for("receivers", path.exists, seconds=60)
            time.sleep(2)
            progress(f"consume: {WAITING:,} receivers that wait")
            busy, requests = used()
            process.check()
    parts = {name: busy[name] - idle[name] for name in busy}
    name = f"{WAITING:,} receivers that wait"
    return [
        single(name, "% of a core", [sum(parts.values())], goal=MOST_OF_A_CORE, parts=[parts]),
        single(f"{name}, to Redis", "requests/s", [requests - idle_requests], goal=MOST_REQUESTS),
    ]


def _to_the_answer(scale: Scale, details: dict[str, Any]) -> Iterator[Figure]:
    for kind, start in (("one primary", server()), ("a Redis Cluster", cluster(3, replicas=False))):
        progress(f"consume: from due time to answer, {kind}")
        with start as running:
            found = _late(running.url, 5.0 if scale.quick else 12.0)
        details[f"{kind}, ms"] = found
        for what in ("p50", "p99"):
            goal = P99_MS[kind] if what == "p99" else None
            parts = {"entry": found.entry[what]}
            yield single(
                f"from due time to answer, {kind}, {what}", "ms", [found.consumer[what]], goal=goal, parts=[parts]
            )


def _late(url: str, seconds: float) -> Lateness:
    plan = Plan(url, TOPICS[:4], RATE, 0, WARM_UP + seconds, DELAYS)
    with _service(url) as (_, port), tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        reader = (*RECEIVE, f"http://127.0.0.1:{port}", str(RECEIVERS), ",".join(plan.topics))
        with Traffic(plan, Path(folder), reader) as traffic:
            first = traffic.plan.start + 1_000 * WARM_UP
            arrived, _ = traffic.wait()
    return lateness([one for one in arrived if one.due >= first])


def _acknowledging(scale: Scale) -> Figure:
    count = 10_000 if scale.quick else 30_000
    with (
        server() as running,
        _service(running.url) as (_, port),
        Client(running.url) as client,
        connect(running.url) as redis,
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
    ):
        path, url = Path(folder) / "bodies", f"http://127.0.0.1:{port}/v1"
        seeds = iter(range(1_000))

        def scheduled() -> float:
            messages = list(make(count, spread(int(now()) + DAY, DAY), seed=next(seeds), topics=(TOPIC,)))
            write_batches(path, messages)
            return BATCH * post_each(Load(f"{url}/messages:batch", path, CONNECTIONS))

        def acknowledged() -> float:
            message = next(make(1, spread(int(now()), 1)))
            fields = {"id": "m", "topic": TOPIC, "tags": "", "keys": "", "body": message.body}
            with redis.pipeline(transaction=False) as pipeline:
                for _ in range(count):
                    pipeline.xadd(TOPIC, fields | {"due": int(now()), "attempt": 1})
                pipeline.execute()
            left, bodies = count, list[Any]()
            while left:
                got = client.receive(TOPIC, group=GROUP, max=BATCH, lease="1h")
                left -= len(got)
                bodies.append({"group": GROUP, "messages": [{"id": one.id, "lease": one.lease} for one in got]})
            write_lines(path, bodies)
            return BATCH * post_each(Load(f"{url}/topics/{TOPIC}:ack", path, CONNECTIONS))

        pairs = in_pairs("consume, acknowledging over HTTP", scale.runs, scheduled, acknowledged, swap=True)
    return paired("acknowledging 100 with each call over HTTP", "messages/s", pairs, goal=ACK_GOAL)


def _consuming(scale: Scale) -> Figure:
    count = 10_000 if scale.quick else 30_000
    beanstalkd = PEERS["beanstalkd"]()

    def rate(peer: Peer) -> float:
        with peer.serving() as serving:
            moment = whole_second(now() + 1_000 * count / PACE + SPARE_MS)
            peer.do("backlog", serving, count, moment)
            sleep_until(moment + peer.slack)
            if peer is OURS:
                with connect(f"redis://{serving.address}") as redis:
                    wait_for("delivered messages", lambda: redis.xlen("bench") == count, seconds=60)
            start = whole_second(now() + SPARE_MS / 2)  # by then its program runs
            return count / peer.do("consume", serving, count, start)["seconds"]

    pairs = in_pairs(
        "consume, the Python consumer", scale.runs, lambda: rate(beanstalkd), lambda: rate(OURS), swap=True
    )
    name = f"the Python consumer, beside beanstalkd {beanstalkd.version}"
    return paired(name, "messages/s", pairs, goal=BEANSTALKD_GOAL)
