"""What keys cost the HTTP API, and what slow clients cost the others.

Two APIs on one Redis take single messages in turn, on 64 connections: one that asks for keys (the key has scopes and a
rate, no quota) and one that does not; the ratio of each pair counts, and what CPU time a request took is told beside it.
Another client schedules one message after the other, alone and beside 1,000 sockets that send a byte a second, or nothing,
and never a whole request; what its p99 is more beside them is told in ms.
"""

from __future__ import annotations

import http.client
import itertools
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, progress, wait_for
from benchmarks.load.http_load import Load, post
from benchmarks.measures.http import messages_of, payload, write_lines
from benchmarks.results import Figure, paired, percentile, single
from benchmarks.running.processes import api, python, server_for
from delayq.api_keys import SCOPES, make_key, write_keys

__all__ = ["run"]

CONNECTIONS: Final = 64
SOCKETS: Final = 1_000
#: Clients of slow sockets: some are between two connections, because the API has cut them off.
CLIENTS: Final = 1_150
#: Between two requests of the client whose answers are timed.
PAUSE: Final = 0.005
PAIRED: Final = 2.0  # s of each of a pair
MOST_PAIRS: Final = 21
LEAST_PAIRS: Final = 9
GOAL_KEYS: Final = 0.95
GOAL_SLOW_MS: Final = 20


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Single messages with a key beside the same without; the p99 beside slow sockets less that without them."""
    seconds = PAIRED if scale.quick else 6.0
    details: dict[str, Any] = {}
    key, entry = make_key("benchmark", {"*": SCOPES}, rate=10**9)
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name, server_for(scale) as running:
        bodies, keys = Path(name) / "singles", Path(name) / "keys.json"
        write_lines(bodies, map(payload, messages_of(5_000, keys=1)))
        write_keys(keys, [entry])
        with api(running.url) as (plain, open), api(running.url, keys=str(keys)) as (asking, guarded):
            used = {open: CpuMeter(api=plain.pid), guarded: CpuMeter(api=asking.pid)}

            def rate(port: int, given: str, seconds: float = seconds) -> float:
                used[port].begin()
                found = post(Load(f"http://127.0.0.1:{port}/v1/messages", bodies, CONNECTIONS, seconds, given))
                used[port].end(round(found * seconds))
                return found

            for port, given, answer in ((open, "", 201), (guarded, key, 201), (guarded, "", 401)):
                if (status := _post_one(port, given, bodies)) != answer:
                    raise BenchmarkError(f"the API {'with' if port == guarded else 'without'} keys answered {status}")
            for port, given in ((open, ""), (guarded, key)):
                rate(port, given, 1)  # warm up
            # Many short pairs: the difference is smaller than what the machine does from one second to the next.
            pairs = in_pairs(
                "access, with a key",
                7 if scale.quick else MOST_PAIRS,
                lambda: rate(open, "", PAIRED),
                lambda: rate(guarded, key, PAIRED),
                swap=True,
                least=LEAST_PAIRS,
            )
            details["CPU µs a request"] = {
                "without keys": used[open].each()["api"], "with a key": used[guarded].each()["api"]
            }  # fmt: skip
            slow = [_slow(guarded, key, bodies, seconds, details) for _ in range(scale.runs)]
    return [
        paired("single messages with a key, beside those without", "requests/s", pairs, goal=GOAL_KEYS),
        single(f"p99 of other requests beside {SOCKETS:,} slow sockets, added", "ms", slow, goal=GOAL_SLOW_MS),
    ], details


def _slow(port: int, key: str, bodies: Path, seconds: float, details: dict[str, Any]) -> float:
    progress("access, slow sockets: without them")
    before = _p99(port, key, bodies, seconds)
    with python("-m", "benchmarks.load.slow_sockets", str(port), str(CLIENTS)) as process:
        wait_for("the slow sockets", lambda: _open(process.pid) >= SOCKETS, seconds=30)
        beside = _p99(port, key, bodies, seconds)
        process.check()
        there = _open(process.pid)
    if there < 0.95 * SOCKETS:
        raise BenchmarkError(f"only {there} slow sockets were left")
    progress(f"access: p99 {before:.2f} ms without, {beside:.2f} ms beside {there} slow sockets")
    found = {"without": before, "beside slow sockets": beside, "sockets": there}
    details.setdefault("p99 of other requests, ms", []).append(found)
    return beside - before


def _open(pid: int) -> int:
    """How many sockets a process has."""
    count = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed by now
            count += os.readlink(one).startswith("socket:")
    return count


def _post_one(port: int, key: str, bodies: Path) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/messages", bodies.read_bytes().splitlines()[0], _headers(key))
    status = connection.getresponse().status
    connection.close()
    return status


def _headers(key: str) -> dict[str, str]:
    return {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _p99(port: int, key: str, bodies: Path, seconds: float) -> float:
    """ms of one client's messages, one after the other on a kept connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = _headers(key)
    took: list[float] = []
    turns = itertools.cycle(bodies.read_bytes().splitlines())
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        connection.request("POST", "/v1/messages", next(turns), headers)
        answer = connection.getresponse()
        answer.read()
        took.append(1_000 * (time.perf_counter() - began))
        if answer.status != 201:
            raise BenchmarkError(f"the API answered {answer.status}")
        time.sleep(PAUSE)
    connection.close()
    return percentile(sorted(took), 99)
