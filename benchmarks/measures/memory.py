"""Memory of a pending message beyond its record: `used_memory` with 500,000 messages pending and without.

Measured without and with one business key, whose text is part of the record; on Valkey, and on Redis where it is
installed. Beside it: memory of an id that is remembered, without and with a business key of 23 bytes, when all of
100,000 messages have been cancelled.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, now, progress
from benchmarks.load.messages import DAY, make, spread
from benchmarks.measures.schedule import schedule_all
from benchmarks.results import Figure, single
from benchmarks.running import limit
from benchmarks.running.processes import connect, server
from delayq import Client, Scheduled

__all__ = ["overhead", "remembered", "run"]

#: Bytes of a message, and of a key.
GOALS: Final = {"Valkey": (185, 125), "Redis": (255, 160)}


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure on what is there."""
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
            plain.append(overhead(scale.messages // 2, 0, binary))
            keyed.append(overhead(scale.messages // 2, 1, binary))
            for keys, found in enumerate(ids):
                found.append(remembered(scale.messages // 10, keys, binary))
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


def overhead(count: int, keys: int, binary: Path | None = None) -> float:
    """Bytes a message beyond the record."""
    messages = list(make(count, spread(int(now()) + DAY, DAY), keys=keys))
    records = sum(len(limit.record(message)) for message in messages)
    with server(binary=binary) as running, connect(running.url) as connection:
        with Client(running.url) as client:
            schedule_all(client, messages[:1])
            before = connection.info("memory")["used_memory"]
            schedule_all(client, messages)
        time.sleep(1.5)  # the AOF's buffer is written, the client's is given back
        after = connection.info("memory")["used_memory"]
    return float(after - before - records) / count


def remembered(count: int, keys: int, binary: Path | None = None) -> float:
    """Bytes of an id whose message has ended."""
    messages = list(make(count, spread(int(now()) + DAY, DAY), keys=keys))
    with server(binary=binary) as running, connect(running.url) as connection:
        with Client(running.url) as client:
            schedule_all(client, messages[:1])
            before = connection.info("memory")["used_memory"]
            ids = [one.id for one in client.schedule_many(messages) if isinstance(one, Scheduled)]
            cancelled = client.cancel_many(ids)
        time.sleep(1.5)  # as in `overhead`
        after = connection.info("memory")["used_memory"]
    if len(ids) != count or any(one.result != "cancelled" for one in cancelled):
        raise BenchmarkError("not all messages were scheduled and cancelled")
    return float(after - before) / count
