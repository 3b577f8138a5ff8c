"""What a worker with 16 empty queues costs: CPU, and requests to Redis.

Requests are counted by MONITOR, which tells what a client sent from what a script did; a pipeline of three is three.
"""

from __future__ import annotations

import time
from typing import Any

import redis

from benchmarks.harness import CpuMeter, Scale, progress
from benchmarks.results import Figure, single
from benchmarks.running.processes import server, worker

__all__ = ["count_requests", "run"]


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure an idle worker."""
    seconds = 10.0 if scale.quick else 20.0
    runs = [_measure(seconds, number) for number in range(1, scale.runs + 1)]
    figures = [
        single("worker's CPU", "% of a core", [100 * cpu["worker"] / seconds for cpu, _ in runs], goal=0.5),
        single("requests to Redis", "/s", [requests / seconds for _, requests in runs], goal=20),
        single("server's CPU meanwhile", "% of a core", [100 * cpu["server"] / seconds for cpu, _ in runs]),
    ]
    return figures, {}


def _measure(seconds: float, number: int) -> tuple[dict[str, float], int]:
    progress(f"idle for {seconds:.0f} s, run {number}")
    with server(rewrites=True) as running, worker(running.url) as process:
        time.sleep(3)
        meter = CpuMeter(worker=process.pid, server=running.pid)
        requests = count_requests(running.url, seconds)
        meter.end(1)
        process.check()
        return meter.seconds(), requests


def count_requests(url: str, seconds: float) -> int:
    """What clients send to a server in so many seconds."""
    deadline = time.monotonic() + seconds
    requests = 0
    with redis.ConnectionPool.from_url(url, protocol=2) as pool:
        connection: Any = pool.get_connection()
        connection.send_command("MONITOR")
        connection.read_response()
        while (left := deadline - time.monotonic()) > 0:
            if connection.can_read(left):
                requests += is_request(connection.read_response())
    return requests


def is_request(line: bytes) -> bool:
    """Whether a line of MONITOR is what a client sent: those of a script have 'lua' in the place of an address."""
    return not line.split(b"]", 1)[0].endswith(b" lua")
