"""A running delayq for the pages: an embedded Valkey, a worker and the API, as ./dev up starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port
from delayq.store.keys import NODES
from tests.docs.blocks import ROOT
from tests.docs.story import Service
from tests.support.waiting import eventually


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One delayq for all pages."""
    folder = tmp_path_factory.mktemp("delayq")
    with EmbeddedServer(data_dir=folder / "valkey") as server, ExitStack() as stack:
        service = Service(f"http://{LOCALHOST}:{free_port()}", server.url)
        env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        env |= {
            "DELAYQ_REDIS_URL": service.redis_url,
            "DELAYQ_API_HOST": LOCALHOST,
            "DELAYQ_API_PORT": service.api.rpartition(":")[2],
        }
        for name in ("workers", "api"):
            stack.enter_context(_program(name, env, folder / f"{name}.log"))
        try:
            eventually(lambda: _answers(f"{service.api}/readyz"), "the API is ready", 60)
        except AssertionError as error:
            logs = "\n".join(log.read_text(errors="replace") for log in folder.glob("*.log"))
            raise AssertionError(f"{error}\n{logs}") from None
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """The running delayq, without messages. Its queues stay those that it knows, else it is not ready any more, and so
    does what its worker last said of itself."""
    client: Any
    with redis.Redis.from_url(running.redis_url, protocol=2) as client:
        born = {key: client.hget(key, "born") for key in client.keys("delayq:{*}:state")}
        lines = eventually(lambda: client.hgetall(NODES), "the worker has said that it is there")
        client.flushall()
        client.hset(NODES, mapping=lines)
        for key, moment in born.items():
            if moment is not None:
                client.hset(key, "born", moment)
    return running


@contextmanager
def _program(name: str, env: dict[str, str], log: Path) -> Iterator[None]:
    command = die_with_parent([sys.executable, "-m", name])
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
