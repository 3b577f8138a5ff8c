from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from delayq import parse_instant
from delayq.base.local_time import in_sentence
from delayq.cli import main
from delayq.client.audit import By
from tests.cli.conftest import Cli, Given
from tests.cli.test_all_commands import COMMANDS
from tests.support.operations import fill
from tests.support.terminal import Terminal

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\r\n\u202eevil [red]x[/red] :smile:"

Show = Callable[..., str]


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
    assert "late ms" in show("overview")
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
    forecast = show("forecast", "--due-from", "2000000000001", "--due-to", "2000000900001")
    assert [line.count("█") for line in forecast.splitlines() if "█" in line] == [30]


def test_nothing_of_a_message_reaches_the_terminal_as_an_order(show: Show, given: Given) -> None:
    given.scheduled("a", body=EVIL, keys=("k",))
    assert "[red]x[/red] :smile:" in show("get", "a")
    given.dead_letter("b", EVIL)
    given.admin.xadd("demo", {"id": EVIL, "topic": EVIL, "tags": EVIL, "body": EVIL, "due": "1", "p:" + EVIL: EVIL})
    for command in ("get a", "get b", "find k", "search", "dead-letters list", "tail demo --from-start --count 1"):
        for form in ((), ("--json",)):
            shown = show(*command.split(), *form)
            assert "\x1b]" not in shown, command
            assert "\x1b[2J" not in shown, command
            assert not set("\x07\x9b\r\u202e") & set(shown), command


LONG = (
    "a" * 128,
    "order-2026-11-27-000000000042-unpaid",
    "取消未付款的订单" * 8,
    "shop.orders.unpaid.of-the-second-week.europe",
)


@pytest.mark.parametrize("width", [40, 80])
def test_no_word_is_broken_and_nothing_else_is_wider_than_the_terminal(
    show: Show, given: Given, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    fill(given.url)
    a, order, body, topic = LONG
    given.scheduled(a, topic=topic, body=f"{body} {body}  {order}", keys=("k",), properties={"说明": body})
    given.scheduled("b", keys=("k",))
    given.dead_letter(order, f"{body} said no to {a} because of everything else", topic=topic)
    given.client.pause("news.*", reason=f"{body} and more of that", by=By(actor=order))
    monkeypatch.setenv("COLUMNS", str(width))
    words = [one.words for one in COMMANDS if not one.words.startswith(("tail", "era bump", "reshard"))]
    words += [f"get -v {a}", f"explain {a}", "find k", f"cancel {a} {order}", f"topics {topic}", "queues -v"]
    said = ""
    for one in words:
        shown = re.sub(r"\x1b\[[\d;]*m", "", show(*shlex.split(one)))
        said += shown
        for line in shown.splitlines():
            assert cell_len(line) <= width or " " not in line.strip(), (one, line)
    for text in LONG:
        assert text in said


def test_a_row_that_does_not_fit_is_a_block_between_the_rows_that_do(
    show: Show, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setenv("NO_COLOR", "1")
    due = "2033-05-18T03:33:20Z"
    for id in ("a", LONG[1], "c"):
        given.scheduled(id, keys=("k",), expect_date=parse_instant(due))
    at = in_sentence("2033-05-18T03:33:20.000Z")
    assert show("find", "k").splitlines() == [
        "id  state      due                  attempts  topic",
        f"a   scheduled  {at}         0  demo",
        f"c   scheduled  {at}         0  demo",
        "",
        f"id        {LONG[1]}",
        "state     scheduled",
        f"due       {at}",
        "attempts  0",
        "topic     demo",
    ]
    assert show("schedule", "t", "--at", due, "--id", "a-") == f"a-  {at}  scheduled\n"
    assert (
        show("schedule", "t", "--at", due, "--id", LONG[1] + "-again")
        == f"id     {LONG[1]}-again\ndue    {at}\nstate  scheduled\n"
    )


def test_times_in_unix_ms_are_printed_on_demand_alone(show: Show, given: Given) -> None:
    given.scheduled("a", expect_date=2_000_000_000_001)
    assert "2000000000001" not in show("get", "a") + show("find", "a")
    assert "2000000000001" in show("get", "a", "-v")
    given.client.pause("news.*", until=2_000_000_000_001)
    assert "2000000000001" not in show("audit")


def test_scripts_get_plain_lines_without_colours(cli: Cli, given: Given) -> None:
    given.scheduled("a", keys=("k",), body=EVIL)
    given.dead_letter("b", EVIL)
    commands = (
        ("queues",),
        ("nodes",),
        ("find", "k"),
        ("dead-letters", "list"),
        ("get", "a"),
        ("doctor",),
        ("overview",),
    )
    for command in commands:
        assert "\x1b" not in cli(*command).out
