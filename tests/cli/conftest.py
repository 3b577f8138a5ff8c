"""The command line on a real server: `cli("get", "x")` runs a command and says how it ended."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from api.app import create_app
from delayq import Client, Message
from delayq.cli import main
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.store import commands
from delayq.store.keys import KEYS
from tests.support.queues import EPOCH, Taken, taken
from tests.support.terminal import without_progress
from tests.support.timeouts import REDIS_TIMEOUT


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of its lines."""
        return [line.split("\t") for line in self.out.splitlines()]

    def refused(self) -> str:
        """The one sentence that it ended with, and nothing beside."""
        assert (self.code, self.out) == (2, "")
        return self.sentence()

    def sentence(self) -> str:
        """The one sentence on stderr."""
        (line,) = self.err.splitlines()
        assert line.startswith("delayq: ")
        assert line[-1] in ".?"
        return line.removeprefix("delayq: ")


class Given:
    """What there is before a command runs."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.admin: Any = redis.Redis.from_url(url, protocol=2)

    def queue_of(self, id: str) -> int:
        queue = self.client.context().layouts.place(id)
        assert queue is not None
        return queue

    def scheduled(self, id: str, **fields: Any) -> str:
        """A message, due in an hour unless told otherwise; its id (an ordering key puts something behind it)."""
        if "expect_date" not in fields:
            fields.setdefault("delay_time", 3_600_000)
        return self.client.schedule(Message(id=id, **({"topic": "demo"} | fields))).id

    def pulled(self, id: str, **fields: Any) -> Taken:
        """A message that is due, and in flight."""
        self.scheduled(id, delay_time=0, **fields)
        keys = KEYS.queue(self.queue_of(id))
        pulled = self.client.store.run(commands.pull(keys, EPOCH, offset=0, room=100))
        return next(one for one in taken(pulled) if one.id == id)

    def dead_letter(self, id: str, reason: str = "the broker said no", **fields: Any) -> None:
        """A message that was given up after one attempt."""
        one = self.pulled(id, **fields)
        keys = KEYS.queue(self.queue_of(id))
        assert self.client.store.run(commands.bury(keys, EPOCH, [(one, 1, reason)])) == ["ok"]

    def parked(self, id: str, name: str) -> None:
        """A message that is set aside under a name."""
        one = self.pulled(id)
        self.client.store.run(commands.park(KEYS.queue(self.queue_of(id)), EPOCH, name, [one]))

    def owner(
        self, node: str, queues: range, /, *, age: int = 0, epoch: str = EPOCH, owned_for: int = 60_000, **more: Any
    ) -> int:
        """A node's line, written `age` ms ago by one that has owned its queues for a while; the time now."""
        now = self.client.store.run(commands.redis_now())
        owned = {str(queue): {"epoch": epoch, "since": now - owned_for} for queue in queues}
        line = {"node": node, "since": now - 3_600_000, "seen": now - age, "queues": owned} | more
        self.client.store.run(commands.publish_node(KEYS, node, json.dumps(line).encode()))
        return now

    def stored(self, epoch: str, queues: range) -> None:
        """Redis has seen this epoch of the queues."""
        for queue in queues:
            assert self.client.store.run(commands.claim(KEYS.queue(queue), epoch)).ok

    def close(self) -> None:
        self.client.close()
        self.admin.close()


@pytest.fixture(scope="session")
def cli_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A Valkey with its append-only file, which the doctor wants to see."""
    with EmbeddedServer(data_dir=tmp_path_factory.mktemp("cli") / "valkey") as running:
        yield running


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the settings of whoever runs the tests, and without time-outs."""
    for name in os.environ:
        if name.startswith("DELAYQ_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    # A page of a search ends by what it has, however slow the machine is.
    monkeypatch.setattr("delayq.client.looking.search.SECONDS", 3_600)
    monkeypatch.setenv("DELAYQ_REDIS_TIMEOUT", f"{REDIS_TIMEOUT}ms")


@pytest.fixture
def given(cli_server: EmbeddedServer, alone: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    """An empty server, which DELAYQ_REDIS_URL names."""
    monkeypatch.setenv("DELAYQ_REDIS_URL", cli_server.url)
    made = Given(cli_server.url)
    made.admin.flushall()
    yield made
    made.close()


def answer(given: Given, path: str) -> Any:
    """The JSON that the HTTP API answers to a GET."""

    async def ask() -> Any:
        app = create_app(load_settings(redis_url=given.url, redis_timeout=REDIS_TIMEOUT))
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api,
        ):
            return (await api.get(path)).json()

    return asyncio.run(ask())


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], alone: None, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command in this process."""

    def run(*args: str | Path, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Ran(code, captured.out, without_progress(captured.err))

    return run
