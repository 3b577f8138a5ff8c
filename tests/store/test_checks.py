from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from delayq.base.errors import ConfigError, StoreUnavailable
from delayq.store import checks
from delayq.store.connect.durability import believable
from delayq.store.connect.store import Store
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

GOOD = checks.ServerSettings(
    name="valkey",
    version="9.1.2",
    aof=True,
    policy="noeviction",
    max_memory=0,
    used_memory=1_000,
    role="master",
    loading=False,
)


def test_a_server_says_what_it_is(server: ServerUnderTest) -> None:
    store = Store(server.url, timeout=PATIENCE)
    server.admin.config_set("maxmemory", "1gb")
    try:
        found = store.run(checks.server())
    finally:
        server.admin.config_set("maxmemory", "0")
        store.close()
    assert found.name == {"valkey": "valkey", "redis7": "redis"}[server.kind]
    assert found.version.split(".")[0].isdigit()
    assert (found.aof, found.policy, found.role, found.loading) == (True, "noeviction", "master", False)
    assert (found.max_memory, found.used_memory > 0) == (2**30, True)


def test_a_server_that_cannot_write_to_its_disk_says_so_and_it_is_told() -> None:
    for field in ("aof_last_write_status", "rdb_last_bgsave_status"):
        for status, failing in (("ok", False), ("err", True)):
            server = checks.server().read(f"{field}:{status}\r\nrole:master\r\n".encode())
            assert server.disk_failing is failing
            assert checks.weakest([GOOD, server]).disk_failing is failing
    found = checks.server().read(b"aof_enabled:1\r\nmaxmemory_policy:noeviction\r\naof_last_write_status:err\r\n")
    (complaint,) = checks.complaints(found)
    assert "free space on its disk" in complaint


def test_what_a_disk_has_refused_counts_until_a_rewrite_has_made_it_good() -> None:
    info = (
        b"run_id:abc\r\naof_enabled:1\r\naof_last_write_status:ok\r\nerrorstat_MISCONF:count=12\r\naof_rewrites:3\r\n"
    )
    found = checks.server().read(info)
    (disk,) = found.disks
    assert (disk.run_id, disk.errors, disk.rewrites, disk.rewriting, disk.rewritten) == ("abc", 12, 3, False, True)
    for good, suspect in (({}, True), ({"abc": 11}, True), ({"abc": 12}, False), ({"other": 12}, True)):
        assert checks.told([found, good]).disks[0].suspect is suspect
    assert len(checks.weakest([found, found]).disks) == 2
    assert "do not restart it" in checks.complaints(checks.told([found, {}]))[-1]


def test_errors_while_snapshots_fail_are_not_taken_for_those_of_the_append_only_file() -> None:
    info = (
        b"run_id:abc\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\naof_last_write_status:%s\r\n"
        b"rdb_last_bgsave_status:%s\r\nerrorstat_MISCONF:count=12\r\n"
    )
    for aof, rdb, told in (
        (b"ok", b"err", "its last snapshot (RDB) failed"),
        (b"ok", b"ok", "may not load it again"),
        (b"err", b"err", "cannot write its append-only file"),
        (b"err", b"ok", "cannot write its append-only file"),
    ):
        (complaint,) = checks.complaints(checks.told([checks.server().read(info % (aof, rdb)), {}]))
        assert told in complaint, (aof, rdb)
    failed = checks.server().read(info % (b"ok", b"err"))
    assert checks.complaints(checks.told([failed, {"abc": 12}])) == []  # it refuses nothing
    assert failed.disk_failing


def test_nothing_is_said_against_a_good_server() -> None:
    for good in (GOOD, msgspec.structs.replace(GOOD, role="unknown")):
        assert checks.complaints(good) == []
        checks.refuse(good)


@pytest.mark.parametrize(
    ("unknown", "accept"),
    [
        ({"policy": None}, (checks.EVICTION,)),
        ({"aof": None}, (checks.PERSISTENCE,)),
        ({"policy": None, "aof": None}, (checks.EVICTION, checks.PERSISTENCE)),
        ({"policy": None, "aof": None, "lacking": ("+info",)}, (checks.EVICTION, checks.PERSISTENCE)),
    ],
    ids=str,
)
def test_what_a_server_does_not_say_is_refused_unless_exactly_that_is_accepted(
    unknown: dict[str, object], accept: tuple[str, ...]
) -> None:
    server = msgspec.structs.replace(GOOD, **unknown)
    for some in (accept[:n] for n in range(len(accept))):
        assert checks.complaints(server, accept=some)
        with pytest.raises(ConfigError, match=r"DELAYQ_ACCEPT=|is missing \+info"):
            checks.refuse(server, some)
    assert checks.complaints(server, accept=accept) == []
    checks.refuse(server, accept)


@pytest.mark.parametrize("known", [{"policy": "allkeys-lru"}, {"aof": False}, {"lacking": ("+zadd",)}], ids=str)
def test_what_a_server_does_say_cannot_be_accepted(known: dict[str, object]) -> None:
    server = msgspec.structs.replace(GOOD, **known)
    accept = (checks.EVICTION, checks.PERSISTENCE)
    assert checks.complaints(server, accept=accept)
    with pytest.raises(ConfigError):
        checks.refuse(server, accept)


def test_too_few_replicas_are_told() -> None:
    followed = msgspec.structs.replace(GOOD, replicas=2)
    assert checks.complaints(followed, min_replicas=2) == []
    (complaint,) = checks.complaints(followed, min_replicas=3)
    assert "only 2 replicas are connected" in complaint


def test_of_several_primaries_the_worst_counts() -> None:
    good = msgspec.structs.replace(GOOD, name="redis", version="7.0.15", used_memory=1, replicas=2)
    other = msgspec.structs.replace(
        good, version="7.4.1", aof=False, policy="allkeys-lru", replicas=0, max_memory=10, used_memory=9
    )
    worst = checks.weakest([good, other, good])
    assert (worst.version, worst.aof, worst.policy, worst.replicas) == ("7.0.15", False, "allkeys-lru", 0)
    assert (worst.max_memory, worst.used_memory, worst.primaries) == (10, 9, 3)
    assert len([one for one in checks.complaints(worst, min_replicas=1) if "one of the 3 primaries" in one]) == 3
    with pytest.raises(ConfigError, match="allkeys-lru on one of the 3 primaries"):
        checks.refuse(worst)


def test_the_waitaof_of_redis_eight_and_later_is_believed() -> None:
    assert believable("redis", "8.0.1")
    for name, version in (("redis", "7.0.15"), ("redis", "7.4.1"), ("valkey", "9.1.2"), ("redis", "unknown")):
        assert not believable(name, version)


@pytest.mark.parametrize(
    ("changes", "advice", "refused"),
    [
        ({"policy": "allkeys-lru"}, "CONFIG SET maxmemory-policy noeviction", "maxmemory-policy is allkeys-lru"),
        ({"policy": "volatile-ttl"}, "CONFIG SET maxmemory-policy noeviction", "maxmemory-policy is volatile-ttl"),
        ({"aof": False}, "CONFIG SET appendonly yes", "the append-only file is off"),
        (
            {"aof": None},
            "does not report whether it keeps an append-only file",
            "does not report whether it keeps an append-only",
        ),
        ({"policy": None}, "DELAYQ_ACCEPT=unknown-eviction", "does not report its maxmemory-policy"),
        ({"lacking": ("+zadd", "&delayq:*")}, "ACL SETUSER", r"is missing \+zadd &delayq:\*"),
        ({"role": "slave"}, "point DELAYQ_REDIS_URL at its primary", ""),
    ],
    ids=str,
)
def test_each_complaint_says_what_to_do_and_a_server_that_loses_messages_is_refused(
    changes: dict[str, object], advice: str, refused: str
) -> None:
    found = msgspec.structs.replace(GOOD, **changes)
    (complaint,) = checks.complaints(found)
    assert advice in complaint
    assert "\n" not in complaint
    with pytest.raises(ConfigError, match=refused) if refused else nullcontext():
        checks.refuse(found)


def test_a_server_that_loads_its_append_only_file_is_away_and_not_without_one() -> None:
    loading = msgspec.structs.replace(GOOD, aof=False, loading=True)
    for ask in (lambda: checks.told([loading, {}]), lambda: checks.refuse(loading)):
        with pytest.raises(StoreUnavailable, match="loading"):
            ask()


@pytest.mark.parametrize(("name", "version", "refused"), [("redis", "8.0.1", True), ("valkey", "9.1.2", False)])
def test_waitaof_is_a_right_that_is_needed_only_where_it_can_be_believed(
    name: str, version: str, refused: bool
) -> None:
    server = msgspec.structs.replace(GOOD, name=name, version=version)
    found = checks.told([server, {}, ("+waitaof",), "always"])
    assert found.lacking == ()
    checks.refuse(found)
    with pytest.raises(ConfigError, match=r"is missing \+waitaof") if refused else nullcontext():
        checks.refuse_fsync(found)
    checks.refuse_fsync(checks.told([server, {}, (), "always"]))
