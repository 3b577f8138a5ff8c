"""The checks of the Redis server: version, append-only file, eviction, memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from delayq.client.findings.check import FAIL, OK, WARN, Check
from delayq.client.findings.facts import Facts
from delayq.store import checks
from delayq.store.connect.exchange import too_old

MEMORY_WARN, MEMORY_FAIL = 0.75, 0.95


def check_server(facts: Facts) -> Iterator[Check]:
    """Check which server it is and whether it keeps its data."""
    server, accept = facts.server, facts.settings.accept
    yield _check_version(server)
    if server.lacking:
        text = f"the user of Redis is missing {' '.join(server.lacking)}"
        mend = "grant it these rights (ACL SETUSER); docs/operations.md lists all rights"
        yield Check("rights", FAIL, text, mend, runbook="delayqalarm")
    yield _check_aof(server, accept)
    yield _check_eviction(server, accept)
    yield _check_memory(server)


def _check_version(server: checks.ServerSettings) -> Check:
    text = f"{server.name} {server.version}"
    if server.primaries > 1:
        text += f", {server.primaries} primaries (the checks below are about the worst)"
    if server.role not in ("master", "unknown"):
        mend = "point DELAYQ_REDIS_URL at its primary"
        return Check("server", FAIL, f"{text} is a replica, which accepts no writes", mend, runbook="delayqalarm")
    if checks.is_too_old(server):
        return Check("server", FAIL, too_old(server.version), "use Redis 7.0 or newer, or Valkey")
    return Check("server", OK, text)


def _check_aof(server: checks.ServerSettings, accept: Collection[str]) -> Check:
    if server.aof is None:
        text = "the server does not report whether it keeps an append-only file"
        if checks.PERSISTENCE in accept:
            return Check("aof", OK, f"{text}, and DELAYQ_ACCEPT accepts that")
        return Check("aof", WARN, text, f"ask its operator, then set DELAYQ_ACCEPT={checks.PERSISTENCE}")
    if not server.aof:
        text = "the append-only file is off, so a restart of Redis loses messages"
        mend = "set appendonly yes, with CONFIG SET and in its configuration file"
        return Check("aof", FAIL, text, mend, runbook="delayqalarm")
    if any(disk.failing for disk in server.disks):
        text = "the append-only file cannot be written, so Redis refuses changes"
        mend = "free space on its disk; the log of Redis has the reason"
        return Check("aof", FAIL, text, mend, runbook="delayqredisdiskfailing")
    if any(disk.refuses_for_snapshots for disk in server.disks):
        return Check("aof", FAIL, checks.SNAPSHOTS, checks.MEND_SNAPSHOTS, runbook="delayqredisdiskfailing")
    if any(disk.suspect for disk in server.disks):
        text = "the append-only file could not be written for a while, and may not load after a restart"
        mend = "do not restart Redis before BGREWRITEAOF has succeeded; a worker starts it, or you do"
        return Check("aof", FAIL, text, mend, runbook="delayqredisrewriteneeded")
    if server.disk_failing:
        text = "the last snapshot (RDB) failed, and by its defaults Redis then refuses changes"
        return Check("aof", WARN, text, checks.MEND_SNAPSHOTS, runbook="delayqredisdiskfailing")
    return Check("aof", OK, "the append-only file is on")


def _check_eviction(server: checks.ServerSettings, accept: Collection[str]) -> Check:
    if server.policy is None:
        text = "the server does not report its maxmemory-policy"
        if checks.EVICTION in accept:
            return Check("eviction", OK, f"{text}, and DELAYQ_ACCEPT accepts that")
        mend = f"ask its operator whether it is noeviction, then set DELAYQ_ACCEPT={checks.EVICTION}"
        return Check("eviction", WARN, text, mend)
    if server.policy != "noeviction":
        text = f"maxmemory-policy is {server.policy}, which lets Redis delete messages"
        mend = "set maxmemory-policy noeviction, with CONFIG SET and in its configuration file"
        return Check("eviction", FAIL, text, mend, runbook="delayqalarm")
    return Check("eviction", OK, "maxmemory-policy is noeviction: a full Redis refuses new messages and deletes none")


def _check_memory(server: checks.ServerSettings) -> Check:
    used, limit = server.used_memory, server.max_memory or server.machine_memory
    if not limit:
        return Check("memory", OK, f"{_size(used)} used")
    share = used / limit
    of = "maxmemory" if server.max_memory else "the machine's memory, because maxmemory is not set"
    text = f"{_size(used)} used, {share:.0%} of {of} ({_size(limit)})"
    if share < MEMORY_WARN:
        return Check("memory", OK, text)
    mend = "give it more memory, or schedule less: a full Redis refuses new messages and still delivers"
    return Check("memory", FAIL if share >= MEMORY_FAIL else WARN, text, mend, runbook="delayqredisfull")


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB" if count < 2**30 else f"{count / 2**30:,.1f} GiB"
