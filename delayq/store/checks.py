"""The requirements of delayq for Redis, which the worker, `/readyz` and `delayq doctor` check."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from delayq.base.errors import ConfigError, StoreError, StoreRefused, StoreUnavailable
from delayq.store.commands import Command, every, rewritten
from delayq.store.connect.durability import believable
from delayq.store.connect.exchange import too_old
from delayq.store.keys import Keys
from delayq.store.rights import CLIENT, SPARED, Needs, lacking
from delayq.store.scripts import stopped_when_full

#: The values of DELAYQ_ACCEPT: facts that a server of another operator does not report.
PERSISTENCE: Final = "unknown-persistence"
EVICTION: Final = "unknown-eviction"
_GIVE: Final = "give it these rights (ACL SETUSER); docs/operations.md lists all"
SNAPSHOTS: Final = "Redis refuses changes, because its last snapshot (RDB) failed"
MEND_SNAPSHOTS: Final = (
    "free its disk, or memory for the fork, then run BGSAVE; or turn snapshots off by CONFIG SET save '' (delayq needs "
    "only the append-only file)"
)
#: The command that Redis refuses.
_COMMAND: Final = re.compile(r"run the '([a-z|]+)'")
#: The oldest major version of Redis that has scripts with flags.
OLDEST: Final = 7


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one server's append-only file: whether it can be written now, and whether it always could.

    A server that could not write all of a command removes the part that it wrote. In a file that a rewrite has begun,
    that leaves a hole of zeros. The file can no longer be loaded (docs/upstream) until another rewrite replaces it.
    `errors` counts the commands that this server (`run_id`) has refused because of its disk. `good` is the number of
    them before a rewrite that has succeeded.
    """

    run_id: str = ""
    failing: bool = False
    errors: int = 0
    good: int = 0
    rewrites: int = 0  # rewrites that have begun
    rewriting: bool = False
    rewritten: bool = True  # the last one succeeded
    snapshot_failed: bool = False  # the last one

    @property
    def refuses_for_snapshots(self) -> bool:
        """Whether it refuses changes because of its snapshots: its errors do not come from the append-only file then."""
        return self.snapshot_failed and not self.failing and self.suspect

    @property
    def suspect(self) -> bool:
        """Whether a restart may find a file that cannot be loaded."""
        return self.errors > self.good


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The relevant settings of a server; None if it does not report one. For a cluster: the worst of its primaries."""

    name: str
    version: str
    aof: bool | None
    policy: str | None
    max_memory: int | None
    used_memory: int
    machine_memory: int = 0  # 0: unknown
    role: str
    loading: bool
    replicas: int = 0
    primaries: int = 1
    disk_failing: bool = False  # its last write to the append-only file, or its last snapshot, failed
    disks: tuple[Disk, ...] = ()  # of each primary
    appendfsync: str | None = None  # when the append-only file is synced; None: not read, or the user may not read it
    may_waitaof: bool = True
    lacking: tuple[str, ...] = ()  # rights that this process needs and the user does not have: '+zadd', '~delayq:*'


def server() -> Command[ServerSettings]:
    """Read the settings of a server; for a cluster, of every primary."""
    return every("INFO", read=lambda replies: weakest([_read(reply) for reply in replies]), misled=_is_replica)


def _is_replica(server: ServerSettings) -> bool:
    """Whether it accepts no writes, as the server at the old place of a moved name."""
    return server.role not in ("master", "unknown")


def weakest(servers: list[ServerSettings]) -> ServerSettings:
    """Return the weakest of several servers: for each setting, the worst value."""
    first, *others = sorted(servers, key=_age)
    if not others:
        return first
    fullest = max(servers, key=lambda one: one.used_memory / (one.max_memory or 2**60))
    return msgspec.structs.replace(
        first,
        aof=_worst([one.aof for one in servers]),
        policy=next((one.policy for one in servers if one.policy not in (None, "noeviction")), first.policy),
        max_memory=fullest.max_memory,
        used_memory=fullest.used_memory,
        machine_memory=fullest.machine_memory,
        role=next((one.role for one in servers if one.role not in ("master", "unknown")), first.role),
        loading=any(one.loading for one in servers),
        replicas=min(one.replicas for one in servers),
        primaries=len(servers),
        disk_failing=any(one.disk_failing for one in servers),
        disks=tuple(disk for one in servers for disk in one.disks),
    )


def _age(server: ServerSettings) -> tuple[bool, list[int]]:
    return server.name == "valkey", [int(part) for part in server.version.split(".") if part.isdigit()]


def _worst(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _read(reply: Any) -> ServerSettings:
    info: dict[str, str] = {}
    if isinstance(reply, dict):
        info = {str(name): str(value) for name, value in reply.items()}
    else:
        for line in reply.decode().splitlines():
            name, colon, value = line.partition(":")
            if colon:
                info[name] = value
    name = info.get("server_name", "redis")
    version = info.get(f"{name}_version", info.get("redis_version", "unknown"))
    return ServerSettings(
        name=name,
        version=version,
        aof=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        policy=info.get("maxmemory_policy"),
        max_memory=int(info["maxmemory"]) if "maxmemory" in info else None,
        used_memory=int(info.get("used_memory", 0)),
        machine_memory=int(info.get("total_system_memory", 0)),
        role=info.get("role", "unknown"),
        loading=info.get("loading") == "1",
        replicas=int(info.get("connected_slaves", 0)),
        disk_failing="err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")),
        disks=(_disk(info),) if info.get("aof_enabled") == "1" else (),
    )


def _disk(info: Mapping[str, str]) -> Disk:
    under_way = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
    return Disk(
        run_id=info.get("run_id", ""),
        failing=info.get("aof_last_write_status") == "err",
        errors=int(info.get("errorstat_MISCONF", "count=0").removeprefix("count=")),
        rewrites=int(info.get("aof_rewrites", 0)),
        rewriting=any(info.get(name) == "1" for name in under_way),
        rewritten=info.get("aof_last_bgrewrite_status") != "err",
        snapshot_failed=info.get("rdb_last_bgsave_status") == "err",
    )


def complaints(
    server: ServerSettings, min_replicas: int = 0, fsync: str = "", accept: Collection[str] = ()
) -> list[str]:
    """Return the problems of a server as sentences; empty if there are none.

    `min_replicas`, `fsync` and `accept` are DELAYQ_MIN_REPLICAS, DELAYQ_FSYNC and DELAYQ_ACCEPT.
    """
    if is_too_old(server):
        return [too_old(server.version)]
    found = _missing_rights(server, accept)
    found += untrusted(server, accept)
    if any(disk.failing for disk in server.disks):
        found.append(
            f"Redis cannot write its append-only file{_where(server)}, and refuses changes: free space on its "
            "disk; the log of Redis has the reason"
        )
    elif any(disk.refuses_for_snapshots for disk in server.disks):
        found.append(f"{SNAPSHOTS}{_where(server)}: {MEND_SNAPSHOTS}")
    elif any(disk.suspect for disk in server.disks):
        found.append(
            f"Redis could not always write its append-only file{_where(server)}, and may not load it again: "
            "do not restart it before a rewrite (BGREWRITEAOF) succeeds"
        )
    if _is_replica(server):
        found.append("this is a replica, which accepts no writes: point DELAYQ_REDIS_URL at its primary")
    if server.replicas < min_replicas:
        found.append(
            f"only {server.replicas} replicas are connected{_where(server)}, but DELAYQ_MIN_REPLICAS is "
            f"{min_replicas}: no change can be confirmed until enough replicas are connected"
        )
    if fsync == "always":
        try:
            refuse_fsync(server)
        except ConfigError as error:
            found.append(f"{error}: no change can be confirmed")
    return found


def _file(server: ServerSettings) -> str:
    if server.aof is None:
        return f"the server does not report whether it keeps an append-only file{_where(server)}"
    return f"the append-only file is off{_where(server)}"


def _where(server: ServerSettings) -> str:
    return f" on one of the {server.primaries} primaries at least" if server.primaries > 1 else ""


def untrusted(server: ServerSettings, accept: Collection[str] = ()) -> Iterator[str]:
    """Yield the reasons why a server may lose messages. A fact that it does not report counts, unless it is accepted."""
    if server.policy is None and EVICTION not in accept:
        yield (
            f"the server does not report its maxmemory-policy{_where(server)}, so it may delete messages: ask its operator "
            f"whether it is noeviction, then set DELAYQ_ACCEPT={EVICTION}"
        )
    elif server.policy not in (None, "noeviction"):
        yield (
            f"maxmemory-policy is {server.policy}{_where(server)}, which lets Redis delete messages: "
            "run CONFIG SET maxmemory-policy noeviction"
        )
    if server.aof is False:
        yield f"{_file(server)}, so a restart of Redis loses messages: run CONFIG SET appendonly yes"
    elif server.aof is None and PERSISTENCE not in accept:
        yield (
            f"{_file(server)}, so a restart of Redis may lose messages: ask its operator, then set "
            f"DELAYQ_ACCEPT={PERSISTENCE}"
        )


def _missing_rights(server: ServerSettings, accept: Collection[str] = (), spared: Collection[str] = ()) -> list[str]:
    # Without INFO a server reports nothing about itself. A caller that accepts that needs no INFO.
    known = {PERSISTENCE, EVICTION} <= set(accept)
    rights = " ".join(right for right in server.lacking if not (known and right == "+info") and right not in spared)
    return [
        f"the user of Redis is missing {rights}{_where(server)}: {_GIVE}"
    ] if rights else []  # fmt: skip


def refuse(server: ServerSettings, accept: Collection[str] = ()) -> None:
    """Raise ConfigError for a server that is too old or would lose messages, for missing rights, and for scripts that a
    full server would stop.

    Raises StoreUnavailable for a server that is not there yet. `accept` is DELAYQ_ACCEPT. API, workers, clients and the
    command line check this before they change anything.
    """
    if stopped := stopped_when_full():
        raise ConfigError(f"a full Redis would refuse {', '.join(stopped)}: add the line '-- @flags allow-oom' there")
    _wait_for_data(server)
    refuse_old(server)
    for missing in _missing_rights(server, accept, SPARED):
        raise ConfigError(missing)
    for reason in untrusted(server, accept):
        raise ConfigError(f"this Redis cannot be trusted: {reason}")


def is_too_old(server: ServerSettings) -> bool:
    """Whether it does not have scripts in delayq's format."""
    major = server.version.partition(".")[0]
    return server.name != "valkey" and major.isdigit() and int(major) < OLDEST


def refuse_old(server: ServerSettings | StoreError) -> None:
    """Raise ConfigError for a server that is too old. A server that reports no version is accepted."""
    if isinstance(server, ServerSettings) and is_too_old(server):
        raise ConfigError(too_old(server.version))


def _wait_for_data(server: ServerSettings) -> None:
    if server.loading:  # while it loads its append-only file, it reports that it has none
        raise StoreUnavailable("Redis is loading its data")


# -- DELAYQ_FSYNC=always -------------------------------------------------------------------------------------------------


def questions(keys: Keys, fsync: str, needs: Needs = CLIENT, min_replicas: int = 0) -> list[Command[Any]]:
    """Return the questions to a server before it is trusted; `told` reads the answers.

    `fsync` and `min_replicas` are DELAYQ_FSYNC and DELAYQ_MIN_REPLICAS; `needs` are the rights of this process.
    """
    more = [name for name, wanted in (("wait", min_replicas > 0), ("waitaof", fsync == "always")) if wanted]
    asked: list[Command[Any]] = [server(), rewritten(keys), lacking(keys, needs, *more)]
    return [*asked, _appendfsync()] if fsync == "always" else asked


def told(answers: list[Any]) -> ServerSettings:
    """Return the server from the answers to `questions`. Raises StoreError or ConfigError.

    ConfigError is for a server that is too old for scripts, and for a user without a right to connect. An example is
    another database than 0. Then Redis refuses every question.
    """
    found, good, *more = answers
    rights = more.pop(0) if more else None
    if is_missing_right(found) and (named := _COMMAND.search(str(found))) is not None and named.group(1) != "info":
        raise ConfigError(f"the user of Redis is missing +{named.group(1)}: {_GIVE}")
    if isinstance(rights, StoreError) and str(rights).startswith(too_old("")):  # also if it may not report its version
        raise ConfigError(str(rights))
    for answer in answers:
        if isinstance(answer, StoreUnavailable):
            raise answer
    missing = rights if isinstance(rights, tuple) else ("+eval",) if is_missing_right(rights) else ()
    if isinstance(found, StoreError):
        if not is_missing_right(found):
            raise found
        missing = tuple(dict.fromkeys((*missing, "+info")))
        found = _read(b"")  # it reports nothing about itself
    _wait_for_data(found)
    if isinstance(good, StoreError):  # its user may not read it
        good = {}
    policy = more[0] if more and isinstance(more[0], str) else None
    disks = tuple(msgspec.structs.replace(disk, good=good.get(disk.run_id, 0)) for disk in found.disks)
    needed = tuple(right for right in missing if right != "+waitaof")  # only if DELAYQ_FSYNC depends on it
    server: ServerSettings = msgspec.structs.replace(
        found, appendfsync=policy, disks=disks, lacking=needed, may_waitaof=needed == missing
    )
    return server


def is_missing_right(answer: Any) -> bool:
    """Whether Redis refused a command because the user may not run it, and did not refuse the user."""
    return isinstance(answer, StoreRefused) and "permission" in str(answer)


def _appendfsync() -> Command[str]:
    """Return when the append-only file is synced to the disk; for a cluster, the weakest answer."""

    def read(replies: list[Any]) -> str:
        values = [reply[1].decode() if reply else "unknown" for reply in replies]
        return next((value for value in values if value != "always"), "always")

    return every("CONFIG", "GET", "appendfsync", read=read)


def refuse_fsync(server: ServerSettings) -> None:
    """Raise ConfigError if a server cannot keep DELAYQ_FSYNC=always."""
    if server.aof is not True:
        raise ConfigError(f"DELAYQ_FSYNC=always needs the append-only file, but {_file(server)}")
    if believable(server.name, server.version) and not server.may_waitaof:
        raise ConfigError(
            f"DELAYQ_FSYNC=always needs WAITAOF, and the user of Redis is missing +waitaof{_where(server)}"
        )
    if not believable(server.name, server.version) and server.appendfsync != "always":
        known = server.appendfsync or "unknown, because its user may not read it (+config|get)"
        raise ConfigError(
            f"DELAYQ_FSYNC=always needs appendfsync always, or Redis 8 or newer, whose WAITAOF can be believed; "
            f"this is {server.name} {server.version} with appendfsync {known}{_where(server)}"
        )
