"""A server that is older than Redis 7.0 is named in one sentence, wherever delayq meets it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import AsyncClient, Client, ConfigError, Message
from delayq.cli import main
from delayq.store import checks, commands
from delayq.store.checks import ServerSettings
from delayq.store.commands import Command
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from tests.support.old_redis import VERSION, old_redis
from tests.support.service import ROOT
from tests.support.timeouts import PATIENCE

SENTENCE = f"delayq needs Redis 7.0 or Valkey; this is {VERSION}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with old_redis() as made:
        yield made


@pytest.mark.parametrize(
    ("name", "version", "old"),
    [
        ("redis", "6.2.14", True), ("redis", "6.9.240", True), ("redis", "5.0.7", True), ("redis", "7.0.0", False),
        ("redis", "8.4.0", False), ("redis", "255.255.255", False), ("redis", "unknown", False), ("valkey", "7.2.5", False),
        ("valkey", "9.1.0", False),
    ],
)  # fmt: skip
def test_only_redis_before_7_is_too_old(name: str, version: str, old: bool) -> None:
    server = ServerSettings(
        name=name,
        version=version,
        aof=True,
        policy="noeviction",
        max_memory=0,
        used_memory=0,
        role="master",
        loading=False,
    )
    assert checks.is_too_old(server) is old
    assert (f"delayq needs Redis 7.0 or Valkey; this is {version}" in checks.complaints(server)) is old


CALLS: dict[str, Callable[[Client], Any]] = {
    "schedule": lambda client: client.schedule(Message(topic="t", delay_time=1)),
    "cancel": lambda client: client.cancel("a"),
    "redrive": lambda client: client.redrive(["a"]),
    "get": lambda client: client.get("a"),
    "queues": lambda client: client.queues(),
    "pause": lambda client: client.pause("t"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_client_says_so_at_the_first_call(url: str, call: Callable[[Client], Any]) -> None:
    with Client(url) as client, pytest.raises(ConfigError, match=f"{SENTENCE}$"):
        call(client)


def test_a_server_that_may_not_say_its_version_is_refused_too() -> None:
    with (
        old_redis(silent=True) as url,
        Client(url) as client,
        pytest.raises(ConfigError, match=r"^delayq needs Redis 7\.0 or Valkey; this is an older server$"),
    ):
        client.schedule(Message(topic="t", delay_time=1))


async def test_an_asynchronous_client_says_so_too(url: str) -> None:
    client = AsyncClient(url)
    with pytest.raises(ConfigError, match=f"{SENTENCE}$"):
        await client.schedule(Message(topic="t", delay_time=1))
    await client.close()


def test_each_script_is_answered_with_the_version(url: str) -> None:
    store = Store(url, timeout=PATIENCE)
    wanted: list[Command[Any]] = [commands.layout(KEYS, 16), commands.redis_now(), commands.layout(KEYS, 16)]
    answers = store.run_many(wanted)
    assert [str(answer) for answer in answers[::2]] == [SENTENCE] * 2
    assert answers[1] == 1_700_000_000_000
    store.close()


@pytest.mark.parametrize("module", ["api", "workers"])
def test_a_service_refuses_to_start_and_says_so(url: str, module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={"DELAYQ_REDIS_URL": url, "DELAYQ_API_PORT": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert SENTENCE in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "words", [("schedule", "t", "--delay", "1s"), ("status",), ("doctor",), ("count",), ("pause", "t")], ids=" ".join
)
def test_the_command_line_says_so(
    url: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", url)
    assert main(list(words)) != 0
    said = capsys.readouterr()
    assert SENTENCE in said.out + said.err
