"""Once Redis could not write its append-only file for a while, a worker has it rewritten, and says so until it is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import structlog

from delayq.client.client import Client
from delayq.embedded import EmbeddedServer
from delayq.store import checks
from delayq.store.checks import Disk
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from tests.support.clusters import Member
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.node.duties.alarms import CALM, Alarms, Rewriting

SUSPECT = "may not load it again"


@pytest.fixture
def admin(own_valkey: EmbeddedServer) -> Iterator[Any]:
    with closing(Member(own_valkey).admin) as made:
        yield made


@pytest.fixture
def client(own_valkey: EmbeddedServer) -> Iterator[Client]:
    with Client(own_valkey.url) as made:
        made.context()
        yield made


def fail(admin: Any) -> None:
    """What is counted when a command is refused because of the disk."""
    with suppress(redis.exceptions.ResponseError):
        admin.eval("return redis.error_reply('MISCONF Errors writing to the AOF file: No space left on device')", 0)


def look(watch: Alarms) -> list[str]:
    """Look, and what is wrong then."""
    watch.look_at_server()
    return list(watch.current.values())


def rewrites(admin: Any) -> int:
    """How many there were; none is under way."""
    eventually(lambda: not admin.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
    count: int = admin.info("persistence")["aof_rewrites"]
    return count


def test_it_is_rewritten_once_and_said_until_then(client: Client, admin: Any) -> None:
    watch = Alarms(client.store, range(16))
    assert look(watch) == []
    assert rewrites(admin) == 0
    fail(admin)
    with structlog.testing.capture_logs() as logs:
        (text,) = look(watch)
    assert SUSPECT in text
    assert [one["event"] for one in logs] == ["rewriting", "alarm"]
    assert rewrites(admin) == 1
    assert look(watch) == [text]  # it has seen that it succeeded, and writes it down
    assert look(watch) == []
    assert rewrites(admin) == 1
    fail(admin)
    look(watch)
    fail(admin)  # again during the rewrite, which is not good then
    assert rewrites(admin) == 2
    assert SUSPECT in look(watch)[0]
    assert rewrites(admin) == 3
    look(watch)
    assert look(watch) == []


def test_another_worker_knows_that_it_was_rewritten_and_the_api_too_and_servers_that_are_gone_are_forgotten(
    client: Client, admin: Any
) -> None:
    admin.hset("delayq:rewritten", "gone", 7)
    watch = Alarms(client.store, range(16))
    fail(admin)
    for _ in range(3):
        look(watch)
        rewrites(admin)
    assert admin.hgetall("delayq:rewritten") == {admin.info("server")["run_id"].encode(): b"1"}
    assert look(Alarms(client.store, range(16))) == []
    assert checks.complaints(checks.told(client.store.run_many(checks.questions(KEYS, "")))) == []
    assert rewrites(admin) == 1
    fail(admin)
    assert SUSPECT in look(Alarms(client.store, range(16)))[0]


def test_a_rewrite_that_failed_is_asked_for_again(own_valkey: EmbeddedServer, client: Client, admin: Any) -> None:
    watch = Alarms(client.store, range(16))
    fail(admin)
    admin.config_set("rdb-key-save-delay", 1_000_000)  # µs, so that there is time
    look(watch)
    assert admin.info("persistence")["aof_rewrite_in_progress"]
    assert SUSPECT in look(watch)[0]  # it waits
    admin.config_set("rdb-key-save-delay", 0)
    kill_child(own_valkey)
    eventually(lambda: admin.info("persistence")["aof_last_bgrewrite_status"] == "err", "it failed")
    assert SUSPECT in look(watch)[0]
    assert rewrites(admin) == 2
    look(watch)
    assert look(watch) == []


def kill_child(server: EmbeddedServer) -> None:
    """End the process that rewrites."""
    (child,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)


def test_a_user_who_may_not_ask_says_so_and_notices_that_somebody_else_did(
    own_valkey: EmbeddedServer, client: Client, admin: Any
) -> None:
    admin.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-bgrewriteaof")
    store = Store(own_valkey.url.replace("redis://", "redis://poor:secret@"), timeout=PATIENCE)
    watch = Alarms(store, range(16))
    fail(admin)
    suspect, refused = look(watch)
    assert SUSPECT in suspect
    assert "run BGREWRITEAOF, and give its user +bgrewriteaof" in refused
    admin.bgrewriteaof()
    assert rewrites(admin) == 1
    look(watch)
    assert look(watch) == []
    store.close()


def test_nothing_is_asked_of_a_disk_that_still_fails() -> None:
    asked: list[object] = []

    class Refusing:
        keys = KEYS

        def run(self, command: object) -> None:
            asked.append(command)

    refusing: Any = Refusing()
    rewriting = Rewriting(refusing)
    rewriting.look([Disk(run_id="a", errors=3, failing=True)])
    assert asked == []
    rewriting.look([Disk(run_id="a", errors=3)])
    assert len(asked) == 1


def test_failing_snapshots_are_named_and_a_rewrite_waits_until_nothing_is_refused_any_more(
    own_valkey: EmbeddedServer, client: Client, admin: Any
) -> None:
    watch = Alarms(client.store, range(16))
    folder, name = (admin.config_get(one)[one] for one in ("dir", "dbfilename"))
    (Path(folder) / name).mkdir()  # so that no snapshot can be written
    admin.config_set("save", "1 1")
    admin.set("other", "1")
    with suppress(redis.exceptions.ResponseError):
        admin.bgsave()
    eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", "a snapshot failed")
    with pytest.raises(redis.exceptions.ResponseError, match=r"MISCONF .*snapshots"):
        admin.set("other", "2")
    for _ in range(CALM - 1):
        (text,) = look(watch)
        assert text.startswith("Redis refuses changes, because its last snapshot (RDB) failed: ")
        assert "CONFIG SET save ''" in text
        assert SUSPECT not in text
    assert rewrites(admin) == 0
    admin.config_set("save", "")  # what the text says
    for _ in range(CALM + 1):
        look(watch)
    assert rewrites(admin) == 1
    look(watch)
    assert look(watch) == []
    assert checks.complaints(checks.told(client.store.run_many(checks.questions(KEYS, "")))) == []


def test_while_snapshots_fail_each_refusal_puts_the_rewrite_off(client: Client, admin: Any) -> None:
    rewriting = Rewriting(client.store)
    for errors in range(1, 3 * CALM):
        rewriting.look([Disk(run_id="a", errors=errors // 2, snapshot_failed=True)])
    assert rewrites(admin) == 0
    for _ in range(CALM + 1):
        rewriting.look([Disk(run_id="a", errors=errors, snapshot_failed=True)])
    eventually(lambda: rewrites(admin) > 0, "it is rewritten")
