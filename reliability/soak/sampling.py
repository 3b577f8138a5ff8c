"""Samples of processes, every few seconds: memory, file descriptors, threads."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec
import redis

from reliability.chaos.stack import Stack
from reliability.waiting import join

MIB = 1024 * 1024
EVERY = 3.0  # s


class Sample(msgspec.Struct, frozen=True):
    """One look at one process, `at` s from the beginning.

    rss, pss and used are MiB. `used` is the size of data and scripts by Redis, None for others and without an answer.
    """

    at: float
    name: str
    pid: int
    rss: float
    pss: float
    fds: int
    threads: int
    used: float | None = None


def look(at: float, name: str, pid: int, used: float | None = None) -> Sample | None:
    """A process, by the data of Linux; None if it has ended."""
    proc = Path(f"/proc/{pid}")
    try:
        status = (proc / "status").read_text()
        pss = _number(r"^Pss:\s+(\d+)", (proc / "smaps_rollup").read_text())
        fds = len(list((proc / "fd").iterdir()))
    except OSError:
        return None
    rss = _number(r"^VmRSS:\s+(\d+)", status)
    if not rss:  # it has ended, and nobody has asked how
        return None
    return Sample(at, name, pid, rss / 1024, pss / 1024, fds, _number(r"^Threads:\s+(\d+)", status), used)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else 0


class Sampler:
    """Looks at workers, APIs and Redis in a thread of its own, for as long as the block lasts."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._redis = redis.Redis.from_url(stack.redis.url, protocol=2, socket_timeout=0.5)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self._began = time.monotonic()
        self.samples: list[Sample] = []
        self.failed: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._look()
                self._over.wait(EVERY)
        except BaseException as error:
            self.failed = error

    def _look(self) -> None:
        at = round(time.monotonic() - self._began, 3)
        running: Mapping[str, Callable[[], int | None]] = {
            **{one.name: lambda one=one: one.pid if one.alive else None for one in self._stack.processes},  # type: ignore[misc]  # a default, so that each has its own
            "redis": lambda: self._stack.redis.pid,
        }
        for name, pid_of in running.items():
            pid = pid_of()
            sample = look(at, name, pid, self._used() if name == "redis" else None) if pid is not None else None
            if sample is not None:
                self.samples.append(sample)

    def _used(self) -> float | None:
        with suppress(redis.exceptions.RedisError):
            said = self._redis.info("memory")
            return float(said["used_memory"] + said["used_memory_vm_total"]) / MIB
        return None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        join([self._thread])
        self._redis.close()
