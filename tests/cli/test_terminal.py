from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from delayq.cli import main
from tests.cli.conftest import Cli, Given
from tests.house.processes import ROOT
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\r\n\u202eevil [red]x[/red] :smile:"

Show = Callable[..., str]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def show(alone: None, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Runs a command whose output goes to a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(*args: str) -> str:
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        main(args)
        return terminal.getvalue()

    return run


def test_a_terminal_gets_tables_with_names(show: Show, given: Given) -> None:
    given.scheduled("a", keys=("k",))
    given.dead_letter("b")
    given.owner("node-1", range(3))
    assert "late ms" in show("queues")
    assert "handed over" in show("nodes")
    assert "highestEpoch" in show("era", "show")
    assert "attempts" in show("find", "k")
    assert "reason" in show("dead-letters", "list")
    assert "headLateness" in show("stats")
    assert show("get", "a", "--json").startswith('{\n  "id": "a"')


def test_a_terminal_gets_the_doctors_colours_and_advice(show: Show, given: Given) -> None:
    given.scheduled("a")
    shown = show("doctor")
    assert "\x1b[32mok" in shown
    assert "start a worker" in shown


def test_nothing_of_a_message_reaches_the_terminal_as_an_order(show: Show, given: Given) -> None:
    given.scheduled("a", body=EVIL, keys=("k",))
    given.dead_letter("b", EVIL)
    given.admin.xadd("demo", {"id": EVIL, "topic": EVIL, "tags": EVIL, "body": EVIL, "due": "1", "p:" + EVIL: EVIL})
    for command in (
        ("get", "a"),
        ("get", "b"),
        ("find", "k"),
        ("search",),
        ("search", "--json"),
        ("dead-letters", "list"),
        ("get", "a", "--json"),
        ("get", "b", "--json"),
        ("dead-letters", "list", "--json"),
        ("tail", "demo", "--from-start", "--count", "1"),
        ("tail", "demo", "--from-start", "--count", "1", "--json"),
    ):
        shown = show(*command)
        assert "\x1b]" not in shown, command
        assert "\x1b[2J" not in shown, command
        assert not set("\x07\x9b\r\u202e") & set(shown), command


def test_what_looks_like_markup_stays_text(show: Show, given: Given) -> None:
    given.scheduled("a", body="[red]x[/red] :smile:")
    assert "[red]x[/red] :smile:" in show("get", "a")


def test_ids_are_never_cut_off(show: Show, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    given.scheduled("a" * 120, keys=("k",))
    assert show("find", "k").count("a") >= 120


def test_scripts_get_plain_lines_without_colours(cli: Cli, given: Given) -> None:
    given.scheduled("a", keys=("k",), body=EVIL)
    given.dead_letter("b", EVIL)
    commands = (("queues",), ("nodes",), ("find", "k"), ("dead-letters", "list"), ("get", "a"), ("doctor",), ("stats",))
    for command in commands:
        assert "\x1b" not in cli(*command).out


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
OF_REDIS = {"asyncio", "delayq.client.client", "pydantic_settings", "redis"}


@pytest.mark.parametrize(
    ("words", "slow"),
    [
        (["--version"], SLOW | OF_REDIS),
        (["version"], SLOW | OF_REDIS),
        (["stats"], SLOW),
        (["schedule", "t", "hello", "--delay", "1h"], SLOW),
        (["get", "nobody"], SLOW),
    ],
)
def test_a_command_imports_what_it_needs(words: list[str], slow: set[str], valkey: ServerUnderTest) -> None:
    code = (
        "import sys; from delayq.cli import main; main(sys.argv[2:]); "
        "print('imported', *set(sys.argv[1].split()) & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, " ".join(slow), *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "DELAYQ_REDIS_URL": valkey.url, "DELAYQ_REDIS_TIMEOUT": f"{PATIENCE:.0f}s"},
        cwd=ROOT,
    )
    assert ran.stdout.splitlines()[-1] == "imported", ran.stderr


def test_help_names_every_command() -> None:
    ran = run("--help")
    assert ran.returncode == 0
    assert all(re.search(rf"^  {word} ", ran.stdout, re.MULTILINE) for word in ("schedule", "dead-letters", "version"))


def test_rich_is_loaded_for_terminals_only() -> None:
    code = "import sys; from delayq.cli import main; main(['version']); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
    assert ran.stderr == "delayq: the output cannot be written: No space left on device.\n"


def test_a_terminal_that_knows_ascii_only_is_no_error(given: Given) -> None:
    given.scheduled("a", body="größer")
    ran = run("get", "a", PYTHONIOENCODING="ascii", DELAYQ_REDIS_URL=given.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "gr\\xf6\\xdfer" in ran.stdout
