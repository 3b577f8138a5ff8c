"""The Redis itself: version, append-only file, eviction, memory, clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from delayq.care.check import FAIL, OK, WARN, Check
from delayq.clock import Clock
from delayq.store import checks, commands
from delayq.store.commands import plain
from delayq.store.connect.store import Store

__all__ = ["check_clock", "check_server"]

OLDEST: Final = 7
SKEW_WARN, SKEW_FAIL = 250, 2_000
MEMORY_WARN, MEMORY_FAIL = 0.75, 0.95
SAMPLES: Final = 5


def check_server(store: Store) -> Iterator[Check]:
    """Which server it is, and whether it keeps what it is given."""
    server = checks.told(store.run_many(checks.questions("")))
    yield _check_version(server)
    yield _check_aof(server)
    yield _check_eviction(server)
    yield _check_memory(server, store.run(plain("INFO", "memory", read=_machine_memory)))


def _check_version(server: checks.ServerSettings) -> Check:
    text = f"{server.name} {server.version}"
    if server.primaries > 1:
        text += f", {server.primaries} primaries (what follows is said of the worst)"
    major = server.version.partition(".")[0]
    if server.role not in ("master", "unknown"):
        mend = "point DELAYQ_REDIS_URL at its primary"
        return Check("server", FAIL, f"{text} is a replica, which takes no writes", mend)
    if major.isdigit() and int(major) < OLDEST:
        return Check("server", FAIL, f"{text} is too old", f"use Redis {OLDEST} or newer, or Valkey")
    return Check("server", OK, text)


def _check_aof(server: checks.ServerSettings) -> Check:
    if server.aof is None:
        return Check("aof", WARN, "the server does not say whether it keeps an append-only file", "ask who runs it")
    if not server.aof:
        text = "the append-only file is off, so a restart of Redis loses messages"
        return Check("aof", FAIL, text, "CONFIG SET appendonly yes, and the same in its configuration file")
    if any(disk.failing for disk in server.disks):
        return Check(
            "aof", FAIL, "the append-only file cannot be written: Redis takes no changes", "make room on its disk"
        )
    if any(disk.suspect for disk in server.disks):
        text = "the append-only file could not be written for a while, and might not be loaded again after a restart"
        mend = "do not restart Redis before BGREWRITEAOF has succeeded: a worker asks for it, or you do"
        return Check("aof", FAIL, text, mend)
    return Check("aof", OK, "the append-only file is on")


def _check_eviction(server: checks.ServerSettings) -> Check:
    if server.policy not in (None, "noeviction"):
        text = f"maxmemory-policy is {server.policy}, which lets Redis throw messages away"
        mend = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file"
        return Check("eviction", FAIL, text, mend)
    return Check("eviction", OK, "maxmemory-policy is noeviction: a full Redis refuses what is new, and drops nothing")


def _machine_memory(reply: Any) -> int:
    info = dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)
    return int(info.get("total_system_memory", 0))


def _check_memory(server: checks.ServerSettings, machine: int) -> Check:
    used, limit = server.used_memory, server.max_memory or machine
    if not limit:
        return Check("memory", OK, f"{_size(used)} used")
    share = used / limit
    of = "maxmemory" if server.max_memory else "the machine's memory, as maxmemory is not set"
    text = f"{_size(used)} used, {share:.0%} of {of} ({_size(limit)})"
    if share < MEMORY_WARN:
        return Check("memory", OK, text)
    mend = "give it more memory, or schedule less: a full Redis takes no new messages, and goes on delivering"
    return Check("memory", FAIL if share >= MEMORY_FAIL else WARN, text, mend)


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"


def check_clock(store: Store, clock: Clock) -> Check:
    """How far apart the two clocks are. Pull goes by the earlier one, so a difference makes late, never early."""
    samples: list[tuple[int, int]] = []
    for _ in range(SAMPLES):
        before = clock.now()
        theirs = store.run(commands.redis_now())
        after = clock.now()
        samples.append((after - before, theirs - (before + after) // 2))
    round_trip, skew = min(samples, key=lambda sample: sample[0])  # the quickest knows best
    text = f"Redis is {abs(skew)} ms {'behind' if skew < 0 else 'ahead of'} this machine (± {round_trip // 2 + 1} ms)"
    if abs(skew) < SKEW_WARN:
        return Check("clock", OK, text)
    mend = "synchronise both clocks (NTP): messages go out by the later of the two"
    return Check("clock", FAIL if abs(skew) >= SKEW_FAIL else WARN, text, mend)
