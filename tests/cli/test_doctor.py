from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
import redis

from delayq.base.clock import SystemClock
from delayq.config import load_settings
from delayq.doctor import examine
from delayq.doctor.access import check_zookeeper
from delayq.doctor.queues import check_pulled
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from delayq.store import commands
from delayq.store.commands import LAYOUT_VERSION
from delayq.store.keys import KEYS
from tests.cli.conftest import Cli, Given, Ran
from tests.docs.blocks import ROOT
from tests.support.waiting import eventually

ALL = range(16)


def checks(ran: Ran) -> dict[str, tuple[str, str, str]]:
    """Name → result, sentence, how to mend it."""
    return {name: (result, text, mend) for result, name, text, mend in ran.rows}


@pytest.fixture
def healthy(given: Given) -> Given:
    given.scheduled("a")
    given.owner("node-1", ALL)
    return given


@contextmanager
def configured(given: Given, name: str, value: str | int) -> Iterator[None]:
    before = given.admin.config_get(name)[name]
    given.admin.config_set(name, value)
    try:
        yield
    finally:
        given.admin.config_set(name, before)


def test_a_healthy_delayq_is_ok_in_everything(cli: Cli, healthy: Given) -> None:
    ran = cli("doctor")
    assert (ran.code, ran.err) == (0, "")
    names = [
        "server", "rights", "password", "aof", "eviction", "memory", "durability", "clock", "layout", "owners", "parked", "pool",
        "accounts",
    ]  # fmt: skip
    assert {name: result for name, (result, _, _) in checks(ran).items()} == dict.fromkeys(names, "ok")
    assert checks(ran)["server"][1].startswith("valkey ")
    assert checks(ran)["layout"][1] == f"layout version {LAYOUT_VERSION}, 16 queues"
    assert "node-1" in checks(ran)["owners"][1]


def test_programs_get_the_checks_too_and_the_page_has_a_row_of_each(cli: Cli, healthy: Given) -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    report = json.loads(cli("doctor", "--json").out)
    assert {one["name"] for one in report["checks"]} <= rows
    assert {one.name for one in check_zookeeper(load_settings(zookeeper="zk.example.com:2181"))} <= rows
    assert report["healthy"] is True
    assert report["checks"][1] == {"name": "aof", "result": "ok", "text": "the append-only file is on", "mend": ""}


def test_a_redis_without_its_append_only_file_or_that_could_not_write_it_fails(
    cli: Cli, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for appendonly, said, advice in (
        (False, "loses messages", "appendonly yes"), (True, "may not load after a restart", "BGREWRITEAOF")
    ):  # fmt: skip
        with EmbeddedServer(appendonly=appendonly) as server, closing(redis.Redis(port=server.port)) as admin:
            if appendonly:
                with suppress(redis.exceptions.ResponseError):
                    admin.eval("return redis.error_reply('MISCONF Errors writing to the AOF file')", 0)
            ran = cli("doctor", "--redis-url", server.url)
            with monkeypatch.context() as patch:
                patch.setenv("DELAYQ_FSYNC", "always")
                assert checks(cli("doctor", "--redis-url", server.url))["durability"][0] == "fail"
        result, text, mend = checks(ran)["aof"]
        assert (ran.code, result, said in text, advice in mend) == (1, "fail", True, True)


def test_a_redis_that_is_nearly_full_or_throws_messages_away_is_reported(cli: Cli, healthy: Given) -> None:
    for share, result, code in ((0.2, "ok", 0), (0.8, "warn", 0), (1.1, "fail", 1)):
        used = healthy.admin.info("memory")["used_memory"]
        with configured(healthy, "maxmemory", int(used / share)):
            ran = cli("doctor")
        assert (ran.code, checks(ran)["memory"][0]) == (code, result)
        assert "of maxmemory" in checks(ran)["memory"][1]
    with configured(healthy, "maxmemory-policy", "allkeys-lru"):
        ran = cli("doctor")
    result, text, mend = checks(ran)["eviction"]
    assert (ran.code, result, "allkeys-lru" in text, "noeviction" in mend) == (1, "fail", True, True)


def test_the_durability_is_shown(cli: Cli, healthy: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, result, text in (
        ("MIN_REPLICAS", "0", "ok", "a fail-over can lose changes that the replica has not received"),
        ("MIN_REPLICAS", "1", "fail", "in 1 of its replicas, of which 0 are connected: no change can be confirmed"),
        ("FSYNC", "everysec", "ok", "a power failure can lose the latest changes (appendfsync everysec)"),
        ("FSYNC", "always", "fail", "needs appendfsync always"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"DELAYQ_{name}", value)
            ran = cli("doctor")
        assert (ran.code, checks(ran)["durability"][0]) == (int(result == "fail"), result)
        assert text in checks(ran)["durability"][1]
    monkeypatch.setenv("DELAYQ_FSYNC", "always")
    with configured(healthy, "appendfsync", "always"):
        ran = cli("doctor")
    assert (ran.code, checks(ran)["durability"][0]) == (0, "ok")
    assert "once it is on the disk of the primary" in checks(ran)["durability"][1]


def follows(url: str) -> bool:
    replication: Any
    with redis.Redis.from_url(url, protocol=2) as admin:
        replication = admin.info("replication")
    return bool(replication["master_link_status"] == "up")


def test_a_replica_fails(cli: Cli, healthy: Given) -> None:
    port = healthy.url.rpartition(":")[2].partition("/")[0]
    with (
        configured(healthy, "repl-diskless-sync-delay", 0),
        EmbeddedServer(extra=["--replicaof", LOCALHOST, port]) as replica,
    ):
        eventually(lambda: follows(replica.url), "the replica follows its primary")
        ran = cli("doctor", "--redis-url", replica.url)
    assert ran.code == 1
    assert checks(ran)["server"][0] == "fail"


def overdue(healthy: Given) -> None:
    """The message of a queue is due for a minute."""
    keys = KEYS.queue(healthy.queue_of("a"))
    (ticket,) = healthy.admin.zrange(keys.queue, 0, -1)
    healthy.admin.zadd(keys.queue, {ticket: SystemClock().now() - 60_000})


def test_a_queue_of_which_nothing_is_pulled_fails(cli: Cli, healthy: Given) -> None:
    overdue(healthy)
    ran = cli("doctor")
    assert (ran.code, checks(ran)["pulled"][0]) == (1, "fail")
    assert f"queue {healthy.queue_of('a')} with due messages" in checks(ran)["pulled"][1]
    keys = KEYS.queue(healthy.queue_of("a"))

    class Pulled(SystemClock):
        """While it waits, somebody pulls."""

        def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
            healthy.admin.hincrby(keys.state, "forwarded", 1)
            return False

    store = healthy.client.store
    assert list(check_pulled(store, [store.run(commands.stats(keys))], Pulled())) == []


class WrongClock(SystemClock):
    def __init__(self, wrong_by: int) -> None:
        self.wrong_by = wrong_by

    def now(self) -> int:
        return super().now() + self.wrong_by


def test_clocks_that_disagree_are_reported(healthy: Given) -> None:
    """G1: Workers (`clock_skew`, `/readyz` on their own port) and `delayq doctor` complain."""
    for wrong_by, result, side in (
        (0, "ok", ""), (1_000, "warn", "behind"), (-1_000, "warn", "ahead of"), (-60_000, "fail", "ahead of")
    ):  # fmt: skip
        found = list(examine(healthy.client.store, load_settings(), WrongClock(wrong_by)))
        (clock,) = [check for check in found if check.name == "clock"]
        assert clock.result == result
        assert side in clock.text


def test_another_layout_fails_and_is_not_touched_nor_is_a_redis_that_nobody_has_used(
    cli: Cli, healthy: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("DELAYQ_QUEUES", "4")
        ran = cli("doctor")
    assert (ran.code, checks(ran)["layout"][0]) == (1, "fail")
    assert "DELAYQ_QUEUES is 4" in checks(ran)["layout"][1]
    healthy.admin.hset("delayq:meta", "version", f"{LAYOUT_VERSION}0")
    ran = cli("doctor", "--repair")
    assert (ran.code, checks(ran)["layout"][0]) == (1, "fail")
    assert "pool" not in checks(ran)
    healthy.admin.flushall()
    ran = cli("doctor", "--repair")
    assert (ran.code, checks(ran)["layout"][0]) == (0, "warn")
    assert healthy.admin.dbsize() == 0


def test_messages_parked_for_a_route_that_is_gone_are_reported(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.parked("a", "t:gone")
    given.parked("b", "k:order-1")
    given.owner("node-1", ALL)
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "mine", "target": "log:"}]')  # nobody judges by what is set here
    assert checks(cli("doctor"))["parked"][0] == "ok", "an older worker has no table in its line"
    streams = {"name": "streams", "match": "*", "target": "redis+stream:", "local": True}
    given.owner("node-1", ALL, routes=[streams])
    ran = cli("doctor")
    result, text, _ = checks(ran)["parked"]
    assert (ran.code, result) == (0, "warn")
    assert f"gone in queue {given.queue_of('a')}" in text
    assert "order-1" not in text
    assert checks(ran)["pool"][0] == "ok"
    given.admin.hset(KEYS.queue(3).state, "parked:t:streams", "1")
    result, text, mend = checks(cli("doctor"))["streams"]
    assert (result, text) == (
        "warn",
        "messages of route streams are parked in queue 3: their streams accept no messages",
    )
    assert "stream_refuses" in mend
    given.admin.hdel(KEYS.queue(3).state, "parked:t:streams")
    given.owner("node-2", range(0), routes=[{"name": "gone", "match": "x", "target": "log:"}])
    assert checks(cli("doctor"))["parked"][0] == "ok", "any live worker may have the route"
    given.client.cancel("a")
    assert checks(cli("doctor"))["pool"][0] == "ok"
    given.parked("c", "t:gone\n\x1b[31m")  # a check says one thing in one line
    ran = cli("doctor")
    assert "\x1b" not in ran.out
    assert len(ran.rows) == len(list(examine(given.client.store, load_settings(), SystemClock())))


def test_a_lost_ticket_fails_and_repair_restores_it(cli: Cli, given: Given) -> None:
    ids = [f"id-{number}" for number in range(40)]
    for id in ids:
        given.scheduled(id)
    given.parked("parked", "t:gone")
    given.owner("node-1", ALL)
    queue = given.queue_of("id-7")
    keys = KEYS.queue(queue)
    (ticket,) = [one for one in given.admin.zrange(keys.queue, 0, -1) if one.startswith(b"id-7\0")]
    due = given.admin.zscore(keys.queue, ticket)
    given.admin.zrem(keys.queue, ticket)

    ran = cli("doctor")
    assert ran.code == 1
    result, text, mend = checks(ran)["pool"]
    assert (result, text.split(":")[0], "--repair" in mend) == ("fail", f"queue {queue}", True)

    ran = cli("doctor", "--repair")
    assert ran.code == 0
    assert checks(ran)["repair"][1].startswith("1 message has its ticket back, and 0 ")
    assert checks(ran)["pool"][0] == "ok"
    assert given.admin.zscore(keys.queue, ticket) == due
    assert sum(one.scheduled for one in given.client.queues()) == 40
    assert given.admin.zcard(KEYS.queue(given.queue_of("parked")).parked("t:gone")) == 1


def test_tickets_without_messages_and_what_cannot_be_read_are_reported_and_repaired(cli: Cli, healthy: Given) -> None:
    healthy.admin.zadd(KEYS.queue(3).queue, {b"orphan\x000000001": 4_000_000_000_000})
    ran = cli("doctor")
    assert ran.code == 0
    assert checks(ran)["pool"][:2] == ("warn", "queue 3: 1 or more tickets have no message")
    healthy.admin.delete(KEYS.queue(3).queue)
    healthy.admin.hset(KEYS.queue(3).pool, "b", "garbled")
    assert checks(cli("doctor"))["pool"][0] == "fail"
    ran = cli("doctor", "--repair")
    assert (ran.code, checks(ran)["pool"][0]) == (0, "ok")
    assert cli("dead-letters", "list").rows[0][4] == "corrupt record"


def test_a_message_that_is_missing_fails_until_repair_writes_it_off(cli: Cli, healthy: Given) -> None:
    healthy.admin.delete(KEYS.queue(healthy.queue_of("a")).pool)
    ran = cli("doctor")
    result, text, mend = checks(ran)["accounts"]
    queue = healthy.queue_of("a")
    assert (ran.code, result, "--repair" in mend) == (1, "fail", True)
    assert text.startswith(f"1 message is missing from queue {queue}")
    assert checks(cli("doctor", "--repair"))["accounts"][1] == f"queue {queue}: wrote off 1 message that was missing"
    assert (cli("doctor").code, checks(cli("doctor"))["accounts"][0]) == (0, "ok")
