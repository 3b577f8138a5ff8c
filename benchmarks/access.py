"""What it costs the HTTP API to ask for keys, and what slow clients cost the others."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, in_pairs, progress, wait_for
from benchmarks.http_load import Load, post
from benchmarks.processes import api, python, server_for
from benchmarks.results import Figure, paired, percentile
from delayq.api_keys import SCOPES, make_key, write_keys

__all__ = ["figures"]

CONNECTIONS: Final = 64
SOCKETS: Final = 1_000
#: Between two requests of the client whose answers are timed.
PAUSE: Final = 0.005
GOAL_KEYS: Final = 0.95
GOAL_SLOW_MS: Final = 20


def figures(scale: Scale, folder: Path, bodies: Path, seconds: float, details: dict[str, Any]) -> list[Figure]:
    """Single messages with a key beside the same without; the p99 beside slow sockets less that without them."""
    path = folder / "keys.json"
    key, entry = make_key("benchmark", {"*": SCOPES}, rate=10**9)
    write_keys(path, [entry])
    with server_for(scale) as running, api(running.url) as (_, open), api(running.url, keys=str(path)) as (_, guarded):

        def rate(port: int, given: str) -> float:
            load = Load(f"http://127.0.0.1:{port}/v1/messages", bodies, CONNECTIONS, seconds, given)
            return post(load)

        for port, given in ((open, ""), (guarded, key)):
            post(Load(f"http://127.0.0.1:{port}/v1/messages", bodies, CONNECTIONS, 1, given))  # warm up
        # More pairs than elsewhere: the difference is small, and one bad second would be all of it.
        pairs = in_pairs("http, with a key", 2 * scale.runs + 1, lambda: rate(open, ""), lambda: rate(guarded, key))
        slow = [_slow(guarded, seconds, details) for _ in range(scale.runs)]
    added = sorted(slow)[len(slow) // 2]
    return [
        paired("single messages with a key, beside those without", "requests/s", pairs, goal=GOAL_KEYS),
        Figure(
            name=f"p99 of other requests beside {SOCKETS:,} slow sockets, added", value=added, unit="ms",
            goal=GOAL_SLOW_MS, at_most=True, runs=slow,
        ),
    ]  # fmt: skip


def _slow(port: int, seconds: float, details: dict[str, Any]) -> float:
    progress("http, slow sockets: without them")
    before = _p99(port, seconds)
    with python("-m", "benchmarks.slow_sockets", str(port), str(SOCKETS)) as process:
        wait_for("the slow sockets", lambda: _open(process.pid) >= SOCKETS * 0.95, seconds=30)
        beside = _p99(port, seconds)
        process.check()
        there = _open(process.pid)
    if there < SOCKETS // 2:
        raise BenchmarkError(f"only {there} slow sockets were left")
    progress(f"http, slow sockets: p99 {before:.2f} ms without, {beside:.2f} ms beside them")
    details.setdefault("p99 of other requests, ms", []).append({"without": before, "beside slow sockets": beside})
    return beside - before


def _open(pid: int) -> int:
    """How many descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _p99(port: int, seconds: float) -> float:
    """ms of one client's requests, one after the other on a kept connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        connection.request("GET", "/livez")
        connection.getresponse().read()
        took.append(1_000 * (time.perf_counter() - began))
        time.sleep(PAUSE)
    connection.close()
    return percentile(sorted(took), 99)
