"""`delayq` as a process: what it imports, and where its output goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from delayq import Client
from tests.cli.conftest import Given
from tests.house.processes import ROOT
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

pytestmark = pytest.mark.long


def run(*args: str, stdout: int = subprocess.PIPE, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "delayq.cli", *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


#: Modules that take long to import. redis-py brings its asyncio twin by itself, typer what it needs of pydantic.
SLOW = {
    "delayq.bridges", "delayq.doctor", "delayq.spark", "delayq.store.connect.async_store", "httpcore2", "kazoo",
    "opentelemetry.sdk.trace", "pika", "pyarrow", "pyspark", "rich", "yaml",
}  # fmt: skip
OF_REDIS = {"asyncio", "delayq.client.client", "redis"}
PLANS = {f"delayq.client.{name}" for name in ("changing", "findings", "looking")}


def test_a_command_imports_what_it_needs(valkey: ServerUnderTest) -> None:
    code = (
        "import sys; from delayq.cli import main; main(sys.argv[2:]); "
        "print('imported', *set(sys.argv[1].split()) & set(sys.modules))"
    )
    given = {"PATH": os.environ["PATH"], "DELAYQ_REDIS_URL": valkey.url, "DELAYQ_REDIS_TIMEOUT": f"{REDIS_TIMEOUT}ms"}
    for words, slow in {
        "--version": SLOW | OF_REDIS, "version": SLOW | OF_REDIS, "queues": SLOW, "schedule t hello --delay 1h": SLOW | PLANS,
        "get nobody": SLOW,
    }.items():  # fmt: skip
        command = [sys.executable, "-c", code, " ".join(slow), *words.split()]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=given, cwd=ROOT)
        assert ran.stdout.splitlines()[-1] == "imported", (words, ran.stderr)


def test_help_names_every_command() -> None:
    ran = run("--help")
    assert ran.returncode == 0
    assert all(re.search(rf"^  {word} ", ran.stdout, re.MULTILINE) for word in ("schedule", "dead-letters", "version"))


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = run("version", stdout=writer)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full: run it on Linux")
def test_a_disk_that_is_full_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        ran = run("version", stdout=full.fileno())
    assert ran.returncode == 2
    assert ran.stderr == "delayq: cannot write the output: No space left on device.\n"


@pytest.mark.parametrize(
    ("closed", "status", "said"),
    [
        (">&-", 2, "delayq: cannot write the output: Bad file descriptor.\n"),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        ("<&-", 0, "delayq: no worker is live"),
        (">&- 2>&- <&-", 2, ""),
    ],
)
def test_a_stream_that_is_closed_or_takes_nothing_is_no_traceback(
    valkey: ServerUnderTest, closed: str, status: int, said: str
) -> None:
    command = f'exec "$0" -m delayq.cli schedule t x --delay 1h --id a --redis-url {valkey.url} {closed}'
    ran = subprocess.run(["sh", "-c", command, sys.executable], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr[: len(said)]) == (status, said)
    assert bool(ran.stderr) == bool(said)
    with Client(valkey.url) as client:
        assert client.get("a") is not None


def test_a_terminal_that_knows_ascii_only_is_no_error(given: Given) -> None:
    given.scheduled("a", body="größer")
    ran = run("get", "a", PYTHONIOENCODING="ascii", DELAYQ_REDIS_URL=given.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in ran.stdout
