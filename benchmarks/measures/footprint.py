"""The footprint of delayq: the memory of a pending message and of a remembered id, and the CPU of an idle worker.

Memory of a pending message is `used_memory` with 500,000 messages minus that without, minus their records. It is measured
without and with one business key (the record has the key's text, too), on Valkey, and on Redis if it is installed. A
remembered id is one of 100,000 cancelled messages, without and with a business key of 23 bytes.

An idle worker has 16 empty queues. Its requests to Redis are counted with MONITOR, which distinguishes the commands of a
client from those of a script. A pipeline of three commands is three requests.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks import BenchmarkError
from benchmarks.harness import CpuMeter, Scale, now, progress
from benchmarks.load.backlog import schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.results import Figure, single
from benchmarks.running import limit
from benchmarks.running.processes import connect, server, worker
from delayq import Client, Message, Scheduled

#: Bytes of a message, and of a key.
GOALS: Final = {"Valkey": (185, 125), "Redis": (255, 160)}


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure memory on the installed servers, then an idle worker."""
    figures, details = _memory(scale)
    seconds = 10.0 if scale.quick else 20.0
    runs = [_idle(seconds, number) for number in range(1, scale.runs + 1)]
    return [
        *figures,
        single("worker's CPU", "% of a core", [100 * cpu["worker"] / seconds for cpu, _ in runs], goal=0.5),
        single("requests to Redis", "/s", [requests / seconds for _, requests in runs], goal=20),
        single("server's CPU meanwhile", "% of a core", [100 * cpu["server"] / seconds for cpu, _ in runs]),
    ], details


def _memory(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    servers: dict[str, Path | None] = {"Valkey": None}
    if installed := shutil.which("redis-server"):
        servers["Redis"] = Path(installed)
    figures = []
    details: dict[str, Any] = {}
    for name, binary in servers.items():
        plain, keyed = [], []
        ids: tuple[list[float], list[float]] = ([], [])
        for number in range(1, scale.runs + 1):
            progress(f"memory on {name}, run {number} of {scale.runs}")
            plain.append(_overhead(scale.messages // 2, 0, binary))
            keyed.append(_overhead(scale.messages // 2, 1, binary))
            for keys, found in enumerate(ids):
                found.append(_remembered(scale.messages // 10, keys, binary))
        extra = [with_key - without for with_key, without in zip(keyed, plain, strict=True)]
        for_message, for_key = GOALS[name]
        figures.append(single(f"{name}, a message beyond its record", "B", plain, goal=for_message))
        figures.append(single(f"{name}, one business key beyond it", "B", extra, goal=for_key))
        figures.append(single(f"{name}, an id that is remembered", "B", ids[0]))
        figures.append(single(f"{name}, an id that is remembered with one business key", "B", ids[1]))
        details[name] = {"server": _version(binary), "plain, B": plain, "with one key, B": keyed}
    return figures, details


def _version(binary: Path | None) -> str:
    with server(binary=binary) as running, connect(running.url) as connection:
        info = connection.info("server")
        return str(info.get("valkey_version") or info["redis_version"])


def _overhead(count: int, keys: int, binary: Path | None) -> float:
    """The bytes of a message beyond its record."""
    messages = list(make(count, spread(int(now()) + DAY, DAY), keys=keys))
    records = sum(len(limit.record(message)) for message in messages)
    return _grown(messages, binary, lambda client: schedule_all(client, messages)) - records / count


def _remembered(count: int, keys: int, binary: Path | None) -> float:
    """The bytes of an id whose message has ended."""
    messages = list(make(count, spread(int(now()) + DAY, DAY), keys=keys))

    def cancel(client: Client) -> None:
        ids = [one.id for one in client.schedule_many(messages) if isinstance(one, Scheduled)]
        if [one.result for one in client.cancel_many(ids)] != ["cancelled"] * count:
            raise BenchmarkError("not all messages were scheduled and cancelled")

    return _grown(messages, binary, cancel)


def _grown(messages: list[Message], binary: Path | None, use: Callable[[Client], object]) -> float:
    """The bytes by which a server has grown for each message."""
    with server(binary=binary) as running, connect(running.url) as connection:
        with Client(running.url) as client:
            schedule_all(client, messages[:1])
            before = connection.info("memory")["used_memory"]
            use(client)
        time.sleep(1.5)  # until the AOF's buffer is written and the client's buffer is freed
        return float(connection.info("memory")["used_memory"] - before) / len(messages)


def _idle(seconds: float, number: int) -> tuple[dict[str, float], int]:
    progress(f"idle for {seconds:.0f} s, run {number}")
    with server(rewrites=True) as running, worker(running.url) as process:
        time.sleep(3)
        meter = CpuMeter(worker=process.pid, server=running.pid)
        requests = count_requests(running.url, seconds)
        meter.end(1)
        process.check()
        return meter.seconds(), requests


def count_requests(url: str, seconds: float) -> int:
    """Count the commands that clients send to a server in this time."""
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
    """Whether a line of MONITOR is a client's command: the lines of a script have 'lua' instead of an address."""
    return not line.split(b"]", 1)[0].endswith(b" lua")
