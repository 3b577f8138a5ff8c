"""A user of Redis who lacks a right: each process refuses to start, and names the right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from delayq import AsyncClient, Client, ConfigError, Message
from delayq.base.clock import SystemClock
from delayq.client.findings import FAIL, WARN
from delayq.config import Settings, load_settings
from delayq.doctor import examine
from delayq.doctor.access import check_rights
from delayq.store import checks, rights, scripts
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.store.rights import Needs
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
from tests.support.waiting import eventually


class Limited:
    """A user of a server, whose rights change."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.server = server
        self.url = server.url.replace("redis://", "redis://limited:limited@")
        self.settings = load_settings(redis_url=self.url, redis_timeout=REDIS_TIMEOUT)

    def allow(self, *words: str) -> None:
        """All that delayq needs, but for that."""
        line = rights.acl_line("limited", "limited").split()
        if self.server.kind == "redis7" and self.server.admin.info("server")["redis_version"] < "7.2":
            line = [word for word in line if word not in ("+waitaof", "+client|setinfo")]
        self.server.admin.execute_command(*line[:3], "reset", *line[3:], *words)

    def lacks(self, needs: Needs) -> tuple[str, ...]:
        """What a process with these needs is told that it lacks."""
        store = Store(self.url, timeout=PATIENCE)
        try:
            found = checks.told(store.run_many(checks.questions(KEYS, "", needs)))
        finally:
            store.close()
        return found.lacking


@pytest.fixture(params=["session_valkey", pytest.param("session_redis7", marks=pytest.mark.long)])
def limited(request: pytest.FixtureRequest) -> Iterator[Limited]:
    server = request.getfixturevalue(request.param)
    server.flush()
    made = Limited(server)
    made.allow()
    yield made
    server.admin.execute_command("ACL", "DELUSER", "limited")


def by_client(settings: Settings) -> None:
    with Client(settings=settings) as client:
        client.schedule(Message(topic="orders.a", id="a", delay_time=60_000))


def by_async_client(settings: Settings) -> None:
    async def call() -> None:
        async with AsyncClient(settings=settings) as client:
            await client.schedule(Message(topic="orders.a", id="a", delay_time=60_000))

    asyncio.run(call())


def by_worker(settings: Settings) -> None:
    with RunningNode(settings):
        pass


@pytest.mark.parametrize("needs", rights.PROCESSES, ids=lambda needs: needs.processes.split(",")[0])
def test_each_right_that_is_missing_is_named(needs: Needs, limited: Limited) -> None:
    assert limited.lacks(needs) == ()
    for command in needs.commands:
        limited.allow(f"-{command}")
        assert limited.lacks(needs) == (f"+{command}",)
    for words, missing in (
        (["resetchannels"], ("&delayq:*",)),
        (["resetkeys", "~orders.*"], ("~delayq:*",)),
        (["resetkeys", "%R~delayq:*"], ("~delayq:*",)),
        (["resetkeys", "~delayq:{*", "~delayq:meta", "~delayq:r*", "~delayq:slots:*"], MOST_KEYS),
        (["-zadd", "-publish"], tuple(one for one in ("+publish", "+zadd") if one[1:] in needs.commands)),
    ):
        limited.allow(*words)
        assert limited.lacks(needs) == missing


MOST_KEYS = (
    "~delayq:nodes", "~delayq:policies:{delayq:meta}", "~delayq:trimmed", "~delayq:audit:{delayq:meta}",
    "~delayq:groups:{delayq:meta}",
)  # fmt: skip


@pytest.mark.parametrize("start", [by_client, by_async_client, by_worker])
@pytest.mark.parametrize("right", ["-zadd", "-zmscore", "-publish", "-eval", "-info", "resetchannels", "resetkeys"])
def test_a_process_without_a_right_refuses_to_start_and_writes_nothing(
    start: Callable[[Settings], None], right: str, limited: Limited
) -> None:
    limited.allow(right)
    named = {"resetchannels": r"&delayq:\*", "resetkeys": r"~delayq:\*"}.get(right, rf"\+{right[1:]}")
    with pytest.raises(ConfigError, match=rf"is missing {named}: give it"):
        start(limited.settings)
    assert limited.server.admin.dbsize() == 0
    limited.allow()
    start(limited.settings)


def test_a_worker_that_may_not_listen_starts_and_says_so(limited: Limited) -> None:
    limited.allow("-subscribe")
    with RunningNode(limited.settings) as running:
        eventually(lambda: "is missing +subscribe" in str(running.node.complaints()), "it is not ready")


def test_a_replica_set_that_cannot_be_waited_for_is_a_missing_right(limited: Limited) -> None:
    limited.allow("-wait")
    by_client(limited.settings)
    with pytest.raises(ConfigError, match=r"is missing \+wait"):
        by_client(limited.settings.replace(min_replicas=1))


def test_doctor_names_what_is_missing_and_for_whom(limited: Limited) -> None:
    store = Store(limited.url, timeout=PATIENCE)
    try:
        for right, result, words in (
            ("-zadd", FAIL, "+zadd (API, Python client, Spark, backfill, bridges, worker, command line)"),
            ("-xlen", WARN, "+xlen (worker)"),
            ("-xread", FAIL, "+xread (command line)"),
            ("-xack", WARN, "+xack (consumers)"),
            ("-eval", FAIL, "'eval'"),
        ):
            limited.allow(right)
            check = check_rights(store)
            assert (check.result, words in check.text) == (result, True), check
        limited.allow("-time", "-hgetall")  # without these doctor can read nothing
        told = {check.name: check for check in examine(store, limited.settings, SystemClock())}
        assert (told["rights"].result, told["server"].result) == (FAIL, FAIL)
    finally:
        store.close()


@contextmanager
def without(limited: Limited, *words: str) -> Iterator[None]:
    limited.allow(*words)
    try:
        yield
    finally:
        limited.allow()


def test_a_managed_redis_that_reports_nothing_serves_once_that_is_accepted(limited: Limited) -> None:
    with without(limited, "-info", "-config"):
        for accept in ("", "unknown-persistence", "unknown-eviction"):
            with pytest.raises(ConfigError):
                by_client(limited.settings.replace(accept=accept))
        assert limited.server.admin.dbsize() == 0
        settings = limited.settings.replace(accept="unknown-persistence, unknown-eviction")
        by_client(settings)
        by_worker(settings)


def test_a_server_that_cannot_say_what_its_user_may_do_is_taken_at_its_word(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers that speak the protocol of Redis have no `redis.acl_check_cmd`."""
    with_it = scripts.source
    monkeypatch.setattr(scripts, "source", lambda name: with_it(name).replace("redis.acl_check_cmd", "redis.nothing"))
    guard = scripts._guard
    monkeypatch.setattr(scripts, "_guard", lambda names: guard(names).replace("redis.acl_check_cmd", "redis.nothing"))
    monkeypatch.setattr(scripts, "load", cache(scripts.load.__wrapped__))
    assert "acl_check_cmd" not in scripts.load("schedule").text + scripts.load("lacking").text
    by_client(load_settings(redis_url=valkey.url, redis_timeout=REDIS_TIMEOUT))
    store = Store(valkey.url, timeout=PATIENCE)
    assert store.run(rights.lacking(KEYS, rights.WORKER)) is None
    assert check_rights(store).text == "the server cannot report the rights of its user"
    store.close()


@pytest.mark.parametrize(("url", "right"), [("?client_name=shop", "client|setname"), ("/3", "select")])
@pytest.mark.parametrize("start", [by_client, by_async_client, by_worker])
def test_a_right_to_connect_is_on_the_list_and_named_by_itself(
    start: Callable[[Settings], None], url: str, right: str, limited: Limited
) -> None:
    settings = limited.settings.replace(redis_url=limited.url.removesuffix("/0") + url)
    with without(limited, f"-{right}"), pytest.raises(ConfigError, match=f"is missing \\+{re.escape(right)}: give it"):
        start(settings)
    start(settings)
    limited.server.flush()
