"""The parts of `controls` that look at messages, while many are pending: `reading` and `search`.

Reading: the p99 of the overview and of the status over HTTP. The default is a million pending messages; `--pending 10000000`
makes it ten million. Search: searches beside calls that schedule, forecasts, and the cost of a worker's census.
`controls_looking URL SECONDS` searches for a topic that no message has, and prints how many messages it read a second.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_turns, now, progress
from benchmarks.load.backlog import schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.results import NOTES, Figure, percentile, single
from benchmarks.running.processes import NULL, api, python, server, worker
from delayq import Client, Filter, Message

#: Messages that are created at a time, because all outcomes of a call have to fit into memory.
SLICE: Final = 100_000

PATHS: Final = ("/v1/overview", "/v1/status")
GOAL_MS: Final = 20
#: Requests of a run, and s between two of them: longer than an answer is shared.
REQUESTS: Final = 40
REQUESTS_APART: Final = 1.05

READ_GOAL: Final = 100_000
LATENCY_GOAL_MS: Final = 10
FORECAST_GOAL_MS: Final = 100
CENSUS_GOAL: Final = 2
STEP: Final = 15 * 60_000
BUCKETS: Final = 96
#: s between two calls that schedule.
APART: Final = 0.005


def _schedule(client: Client, what: str, pending: int) -> None:
    progress(f"controls, {what}: scheduling {pending:,} messages")
    for seed, begin in enumerate(range(0, pending, SLICE)):
        some = min(SLICE, pending - begin)
        schedule_all(client, make(some, spread(int(now()) + DAY, DAY), seed=seed))


def reading(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """The p99 of answers that nobody has asked for in the second before."""
    pending = scale.pending or scale.messages
    with server() as running, worker(running.url), Client(running.url) as client, api(running.url) as (_, port):
        _schedule(client, "reading", pending)
        took = {path: [_p99(port, path, 10 if scale.quick else REQUESTS) for _ in range(scale.runs)] for path in PATHS}
    return [
        single(f"GET {path}, p99 with {pending:,} messages pending", "ms", runs, goal=GOAL_MS)
        for path, runs in took.items()
    ], {NOTES: [f"{pending:,} messages were pending; `--pending` sets another number."]}


def _p99(port: int, path: str, requests: int) -> float:
    took = []
    for _ in range(requests):
        time.sleep(REQUESTS_APART)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.connect()
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        took.append(1_000 * (time.perf_counter() - began))
        connection.close()
        if answer.status != 200:
            raise BenchmarkError(f"the API answered {answer.status}")
    return percentile(sorted(took), 99)


def search(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure searches, forecasts and the census."""
    pending = scale.pending or scale.messages
    seconds = 5.0 if scale.quick else 20.0
    with server() as running, Client(running.url) as client:
        _schedule(client, "search", pending)
        searched = [_searched(client, running.url, seconds) for _ in range(scale.runs)]
        alone = [_p99_of_calls(client, seconds) for _ in range(scale.runs)]
        forecasts = [_forecast(client) for _ in range(10 * scale.runs)]
        census = in_turns(
            "controls, search",
            scale.runs,
            {
                "with": lambda: _cpu(running.url, running.pid, 2 * seconds),
                "without": lambda: _cpu(running.url, running.pid, 2 * seconds, WITHOUT_CENSUS="1"),
            },
        )
    return [
        single(
            "messages looked at by a search that finds nothing",
            "/s",
            [read for read, _ in searched],
            goal=READ_GOAL,
            at_most=False,
        ),
        single("a call that schedules beside it, p99", "ms", [took for _, took in searched], goal=LATENCY_GOAL_MS),
        single("a call that schedules alone, p99", "ms", alone),
        single(f"a forecast of {BUCKETS} steps", "ms", forecasts, goal=FORECAST_GOAL_MS),
        single(
            "what a census costs the worker and its server",
            "% of a core",
            [100 * (one["with"] - one["without"]) / (2 * seconds) for one in census],
            goal=CENSUS_GOAL,
        ),
    ], {NOTES: [f"Searched among {pending:,} messages; `--pending` sets another number."]}


def _searched(client: Client, url: str, seconds: float) -> tuple[float, float]:
    """The messages that a search reads a second, and the p99 in ms of calls that schedule meanwhile."""
    with python("-m", "benchmarks.measures.controls_looking", url, str(seconds + 2)) as process:
        time.sleep(1)
        took = _p99_of_calls(client, seconds)
        process.wait(60)
        return float(process.output()), took


def _p99_of_calls(client: Client, seconds: float) -> float:
    took = []
    for message in _messages():
        began = time.perf_counter()
        client.schedule(message)
        took.append(1_000 * (time.perf_counter() - began))
        if sum(took) / 1_000 + APART * len(took) > seconds:
            break
        time.sleep(APART)
    return percentile(sorted(took), 99)


def _messages() -> Iterator[Message]:
    while True:
        yield Message(topic="orders.unpaid", body="x" * 100, delay_time=DAY)


def _forecast(client: Client) -> float:
    began, begin = time.perf_counter(), int(now()) + DAY
    client.forecast(begin, begin + BUCKETS * STEP, STEP)
    return 1_000 * (time.perf_counter() - began)


def _cpu(url: str, pid: int | None, seconds: float, **settings: str) -> float:
    """The CPU seconds of an idle worker and its server."""
    with worker(url, NULL, **settings) as process:
        time.sleep(3)
        meter = CpuMeter(worker=process.pid, server=pid)
        time.sleep(seconds)
        meter.end(1)
        process.check()
    return sum(meter.seconds().values())


def main() -> None:
    """Search until the time is over."""
    url, seconds = sys.argv[1], float(sys.argv[2])
    wanted = Filter(topic="nothing.*.goes.there")
    read, token = 0, None
    with Client(url) as client:
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            page = client.search(wanted, token=token)
            read, token = read + page.looked, page.next_token
    print(read / took, flush=True)


if __name__ == "__main__":
    main()
