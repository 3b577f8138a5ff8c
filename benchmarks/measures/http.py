"""Scheduling over HTTP: one API process and kept connections, each waiting for its answer.

Batches of 100 messages are compared with the limit of scheduling. Single messages are compared with an empty endpoint of
FastAPI and Pydantic with the same payload, server and settings, on 64 connections. At 1,000/s they arrive in an open loop on
16 connections, and the CPU time counts.

API keys: two APIs on one Redis take single messages in turn, on 64 connections. One requires keys (the key has scopes and a
rate, no quota), the other does not; the ratio of each pair counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, in_pairs, now, progress
from benchmarks.load.http_load import Load, Paced, paced, post
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures.schedule import measure_limit
from benchmarks.results import Figure, paired, single
from benchmarks.running import limit
from benchmarks.running.processes import api, http_service, server_for
from delayq import Client, Message
from delayq.domain.api_keys import SCOPES, make_key, write_keys
from delayq.embedded.processes import free_port

BATCH: Final = 100
BATCH_CONNECTIONS: Final = 16
SINGLE_CONNECTIONS: Final = 64
RATE: Final = 1_000
RATE_CONNECTIONS: Final = 16
#: The goal in CPU µs of the API a request.
RATE_US: Final = 300
GOALS: Final = {"batches of 100": 0.5, "single messages": 1.5}
#: s of each side of a pair with and without keys. The difference is small, so many short pairs are measured.
PAIRED: Final = 2.0
MOST_PAIRS: Final = 21
LEAST_PAIRS: Final = 9
GOAL_KEYS: Final = 0.95


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure batches, single messages and API keys."""
    seconds = 4.0 if scale.quick else 6.0
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name:
        folder = Path(name)
        messages = _messages_of(scale.messages, keys=0)
        limit.write_schedule(folder / "commands", messages)
        write_batches(folder / "batches", messages[:20_000])
        bodies = folder / "singles"
        write_lines(bodies, map(_payload, _messages_of(5_000, keys=1)))
        figures = [
            _batches(scale, folder, messages, seconds, details),
            _singles(scale, bodies, seconds, details),
            _at_a_rate(scale, bodies, seconds),
            _with_a_key(scale, folder, bodies, details),
        ]
    return figures, details


def _messages_of(count: int, *, keys: int) -> list[Message]:
    """Create messages that are due within a day, a day from now."""
    progress(f"http: preparing {count:,} messages")
    return list(make(count, spread(int(now()) + DAY, DAY), keys=keys))


def _batches(scale: Scale, folder: Path, messages: list[Message], seconds: float, details: dict[str, Any]) -> Figure:
    costs: list[dict[str, float]] = []

    def ours() -> float:
        load = ("/v1/messages:batch", folder / "batches", BATCH_CONNECTIONS, seconds)
        return BATCH * _measure(scale, *load, each=BATCH, costs=costs)

    pairs = in_pairs("http, batches of 100", scale.runs, lambda: measure_limit(folder / "commands", messages), ours)
    details["batches of 100, CPU µs a message"] = costs
    return paired("batches of 100", "messages/s", pairs, goal=GOALS["batches of 100"])


def _singles(scale: Scale, bodies: Path, seconds: float, details: dict[str, Any]) -> Figure:
    costs: list[dict[str, float]] = []

    def ours() -> float:
        return _measure(scale, "/v1/messages", bodies, SINGLE_CONNECTIONS, seconds, each=1, costs=costs)

    pairs = in_pairs("http, single messages", scale.runs, lambda: _empty(bodies, SINGLE_CONNECTIONS, seconds), ours)
    details["single messages, CPU µs a message"] = costs
    return paired("single messages", "requests/s", pairs, goal=GOALS["single messages"])


def _at_a_rate(scale: Scale, bodies: Path, seconds: float) -> Figure:
    costs: list[dict[str, float]] = []
    parts: list[dict[str, float]] = []
    for number in range(1, scale.runs + 1):
        progress(f"http, single messages at {RATE:,}/s, run {number}")
        found: list[Paced] = []

        def send(load: Load, found: list[Paced] = found) -> float:
            found.append(paced(load, RATE))
            return found[-1].rate

        _measure(scale, "/v1/messages", bodies, RATE_CONNECTIONS, seconds, each=1, costs=costs, send=send)
        parts.append({"Redis": costs[-1].get("server", 0), "ms p50": found[-1].p50, "ms p99": found[-1].p99})
    name = f"single messages at {RATE:,}/s, API"
    return single(name, "µs a request", [cost["api"] for cost in costs], goal=RATE_US, parts=parts)


def _payload(message: Message) -> dict[str, Any]:
    """The JSON of a message."""
    return {
        "topic": message.topic,
        "tags": message.tags,
        "keys": message.keys,
        "body": message.body,
        "expectDate": message.expect_date,
    }


def write_batches(path: Path, messages: Sequence[Message]) -> None:
    """Write the bodies of batches that schedule these messages, one a line."""
    payloads = list(map(_payload, messages))
    starts = range(0, len(payloads), BATCH)
    write_lines(path, ({"messages": payloads[start : start + BATCH]} for start in starts))


def write_lines(path: Path, values: Any) -> None:
    """Write values as JSON, one a line."""
    path.write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))


def _measure(
    scale: Scale,
    path: str,
    bodies: Path,
    connections: int,
    seconds: float,
    *,
    each: int,
    costs: list[dict[str, float]],
    send: Callable[[Load], float] = post,
) -> float:
    """Measure the requests/s of the API with `send`; the cost of a message is added to `costs`."""
    with server_for(scale) as running, api(running.url) as (process, port):
        url = f"http://127.0.0.1:{port}{path}"
        post(Load(url, bodies, connections, 1))  # warm up
        before = _scheduled(running.url)
        meter = CpuMeter(api=process.pid, server=running.pid)
        rate = send(Load(url, bodies, connections, seconds))
        scheduled = _scheduled(running.url) - before
        # wrk computes the rate over its own time, which is a little longer.
        if scheduled < 0.95 * rate * seconds * each:
            raise BenchmarkError(f"the API answered {rate * seconds * each:,.0f} but scheduled {scheduled:,}")
        meter.end(scheduled)
        costs.append(meter.each())
        return rate


def _scheduled(url: str) -> int:
    with Client(url) as client:
        return sum(queue.counters["scheduled"] for queue in client.queues())


def _empty(bodies: Path, connections: int, seconds: float) -> float:
    port = free_port()
    with http_service("/readyz", "-m", "benchmarks.running.empty_api", str(port), port=port):
        url = f"http://127.0.0.1:{port}/v1/messages"
        post(Load(url, bodies, connections, 1))
        return post(Load(url, bodies, connections, seconds))


def _with_a_key(scale: Scale, folder: Path, bodies: Path, details: dict[str, Any]) -> Figure:
    """Compare single messages with a key with those without."""
    key, entry = make_key("benchmark", {"*": SCOPES}, rate=10**9)
    keys = folder / "keys.json"
    write_keys(keys, [entry])
    with (
        server_for(scale) as running,
        api(running.url) as (plain, open),
        api(running.url, keys=str(keys)) as (asking, guarded),
    ):
        used = {open: CpuMeter(api=plain.pid), guarded: CpuMeter(api=asking.pid)}

        def rate(port: int, given: str, seconds: float = PAIRED) -> float:
            used[port].begin()
            found = post(Load(f"http://127.0.0.1:{port}/v1/messages", bodies, SINGLE_CONNECTIONS, seconds, given))
            used[port].end(round(found * seconds))
            return found

        for port, given in ((open, ""), (guarded, key)):
            rate(port, given, 1)  # warm up
        pairs = in_pairs(
            "http, with a key",
            7 if scale.quick else MOST_PAIRS,
            lambda: rate(open, ""),
            lambda: rate(guarded, key),
            swap=True,
            least=LEAST_PAIRS,
        )
        details["CPU µs a request"] = {
            "without keys": used[open].each()["api"], "with a key": used[guarded].each()["api"]
        }  # fmt: skip
    return paired("single messages with a key, beside those without", "requests/s", pairs, goal=GOAL_KEYS)
