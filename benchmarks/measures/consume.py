"""Consuming: what waiting receivers cost, how soon a message reaches them, and how fast consumers acknowledge.

- Waiting: 1,000 receivers wait over HTTP on one API, for eight topics and 30 s each, again and again. Nothing falls due. One
  figure is the CPU time of the API and the server, the other the commands to the server. The use of an idle API and worker
  is subtracted.
- Many topics: 900 receivers wait over HTTP on one API, each for its own topic. Others schedule at 100/s meanwhile: the figure is
  how much later than without receivers their p99 is answered. Then each topic gets a message, which its receiver gets.
- From due time to answer: 64 receivers wait over HTTP, and messages fall due at 100/s. The messages of the last answer are
  acknowledged by the next call. One primary, then a Redis Cluster of three.
- The Python consumer on Redis receives 1,000 messages with each call and acknowledges the last ones with it. The limit is
  beanstalkd with its Go client and 16 connections. Both consume messages that were due before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress, wait_for
from benchmarks.load.backlog import sleep_until
from benchmarks.load.messages import TOPICS
from benchmarks.load.receivers import RECEIVE
from benchmarks.load.traffic import WARM_UP, Lateness, Plan, Traffic, lateness
from benchmarks.measures.footprint import count_requests
from benchmarks.measures.peers import PACE, SPARE_MS, whole_second
from benchmarks.peers import OURS, PEERS, Peer
from benchmarks.results import LEFT_OUT, Figure, paired, percentile, single
from benchmarks.running.groups import cluster
from benchmarks.running.processes import api, connect, python, server, worker
from delayq import Client, Message
from testbed.errors import ServerMissing

WAITING: Final = 1_000
MOST_OF_A_CORE: Final = 3.0
MOST_REQUESTS: Final = 20.0
TOPICS_OF_MANY: Final = 900
OTHERS_EVERY: Final = 0.01
MOST_LATER_MS: Final = 10.0
RECEIVERS: Final = 64
RATE: Final = 100
DELAYS: Final = (500, 1_500)
P99_MS: Final = {"one primary": 10.0, "a Redis Cluster": 200.0}
BEANSTALKD_GOAL: Final = 1.2
TOPIC: Final = TOPICS[0]
GROUP: Final = "bench"


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure waiting receivers, the time to an answer, and the Python consumer."""
    details: dict[str, Any] = {}
    figures = [
        *_waiting(scale),
        _of_many_topics(scale, details),
        *_to_the_answer(scale, details),
    ]
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


def _of_many_topics(scale: Scale, details: dict[str, Any]) -> Figure:
    seconds, topics = 5.0 if scale.quick else 15.0, [f"many.{number}" for number in range(TOPICS_OF_MANY)]
    with (
        server() as running,
        _service(running.url) as (_, port),
        Client(running.url) as client,
        tempfile.TemporaryDirectory() as folder,
    ):
        _answered(port, 1.0)  # warm-up
        progress("consume: others on an API without receivers")
        alone = _answered(port, seconds)
        path = Path(folder) / "all wait"
        words = (f"http://127.0.0.1:{port}", str(len(topics)), ",".join(topics), str(len(topics)), str(path))
        with python(*RECEIVE, *words) as process:
            wait_for("receivers", path.exists, seconds=60)
            time.sleep(2)
            progress(f"consume: others beside {len(topics)} receivers of as many topics")
            beside = _answered(port, seconds)
            for topic in topics:
                client.schedule(Message(topic=topic, body="x", delay_time=0))
            process.wait(30)  # it ends when each has got its message
    details["others beside receivers of many topics, ms"] = {"alone": alone, "beside": beside}
    later = percentile(beside, 99) - percentile(alone, 99)
    name = f"others' p99 beside {len(topics)} receivers of as many topics"
    return single(name, "ms later", [later], goal=MOST_LATER_MS, parts=[{"alone": percentile(alone, 99)}])


def _answered(port: int, seconds: float) -> list[float]:
    """The ms from each call of others to its answer, in order of size."""
    body, found = b'{"topic": "other", "body": "x", "delayTime": "1h"}', list[float]()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as others:
        begin = time.perf_counter()
        for number in range(int(seconds / OTHERS_EVERY)):
            at = begin + number * OTHERS_EVERY
            time.sleep(max(0.0, at - time.perf_counter()))
            others.request("POST", "/v1/messages", body, {"content-type": "application/json"})
            answer = others.getresponse()
            answer.read()
            if answer.status != 201:
                raise BenchmarkError(f"the API answered {answer.status}")
            found.append(1_000 * (time.perf_counter() - at))
    return sorted(found)


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
