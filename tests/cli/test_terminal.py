from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from delayq.cli import main
from tests.cli.conftest import Cli, Given

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


def test_a_terminal_gets_tables_with_names_and_the_doctors_colours_and_advice(show: Show, given: Given) -> None:
    given.scheduled("a", keys=("k",))
    doctor = show("doctor")
    assert "\x1b[32mok" in doctor
    assert "start a worker" in doctor
    given.dead_letter("b")
    given.owner("node-1", range(3))
    assert "late ms" in show("queues")
    assert "handed over" in show("nodes")
    assert "highestEpoch" in show("era", "show")
    assert "attempts" in show("find", "k")
    assert "reason" in show("dead-letters", "list")
    assert "headLateness" in show("stats")
    assert show("get", "a", "--json").startswith('{\n  "id": "a"')


def test_the_lines_of_the_doctor_and_of_a_forecast_are_whole_in_80_columns(
    show: Show, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    given.scheduled("a", expect_date=2_000_000_000_001)
    given.dead_letter("b")
    doctor = re.sub(r"\x1b\[[\d;]*m", "", show("doctor")).splitlines()
    names = [line.split()[1] for line in doctor if line[:1] != " "]
    assert {"durability", "deadLetters"} <= set(names)
    assert all(line[17] == " " != line[18] for line in doctor)
    forecast = show("forecast", "--from", "2000000000001", "--to", "2000000900001")
    assert [line.count("█") for line in forecast.splitlines() if "█" in line] == [30]


def test_nothing_of_a_message_reaches_the_terminal_as_an_order(show: Show, given: Given) -> None:
    given.scheduled("a", body=EVIL, keys=("k",))
    given.dead_letter("b", EVIL)
    given.admin.xadd("demo", {"id": EVIL, "topic": EVIL, "tags": EVIL, "body": EVIL, "due": "1", "p:" + EVIL: EVIL})
    for command in ("get a", "get b", "find k", "search", "dead-letters list", "tail demo --from-start --count 1"):
        for form in ((), ("--json",)):
            shown = show(*command.split(), *form)
            assert "\x1b]" not in shown, command
            assert "\x1b[2J" not in shown, command
            assert not set("\x07\x9b\r\u202e") & set(shown), command


def test_ids_are_never_cut_off_and_markup_stays_text(show: Show, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    given.scheduled("a" * 120, keys=("k",))
    assert show("find", "k").count("a") >= 120
    given.scheduled("b", body="[red]x[/red] :smile:")
    assert "[red]x[/red] :smile:" in show("get", "b")


def test_scripts_get_plain_lines_without_colours(cli: Cli, given: Given) -> None:
    given.scheduled("a", keys=("k",), body=EVIL)
    given.dead_letter("b", EVIL)
    commands = (("queues",), ("nodes",), ("find", "k"), ("dead-letters", "list"), ("get", "a"), ("doctor",), ("stats",))
    for command in commands:
        assert "\x1b" not in cli(*command).out
