"""How long those wait who look at the whole, over HTTP, while very many messages are pending and a worker runs.

By default a million messages; `--pending 10000000` makes it ten.
"""

from __future__ import annotations

import http.client
import time
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, now, progress
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures.schedule import schedule_all
from benchmarks.results import NOTES, Figure, percentile, single
from benchmarks.running.processes import api, server, worker
from delayq import Client

__all__ = ["run"]

PATHS: Final = ("/v1/overview", "/v1/status")
GOAL_MS: Final = 20
#: Messages that are made at a time: what becomes of all of them has to fit into memory.
SLICE: Final = 100_000
#: Requests of a run, and seconds between two of them: longer than an answer is shared.
REQUESTS: Final = 40
APART: Final = 1.05


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """The p99 of answers that nobody has asked for in the second before."""
    pending = scale.pending or scale.messages
    with server() as running, worker(running.url), Client(running.url) as client, api(running.url) as (_, port):
        progress(f"controls, reading: scheduling {pending:,} messages")
        for seed, count in enumerate(_slices(pending)):
            schedule_all(client, make(count, spread(int(now()) + DAY, DAY), seed=seed))
        took = {path: [_p99(port, path, 10 if scale.quick else REQUESTS) for _ in range(scale.runs)] for path in PATHS}
    return [
        single(f"GET {path}, p99 with {pending:,} messages pending", "ms", runs, goal=GOAL_MS)
        for path, runs in took.items()
    ], {NOTES: [f"Looked at with {pending:,} messages pending; `--pending` takes another number."]}


def _slices(count: int) -> list[int]:
    return [min(SLICE, count - begin) for begin in range(0, count, SLICE)]


def _p99(port: int, path: str, requests: int) -> float:
    took = []
    for _ in range(requests):
        time.sleep(APART)
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
