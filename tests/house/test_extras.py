"""What the package needs without and with its extras, and how the command line names the one that is missing."""

from __future__ import annotations

import sys

import pytest

from delayq.cli import main
from devtools.constraints import needed, with_extras


def test_the_client_alone_brings_few_packages_and_the_server_brings_the_command_line() -> None:
    assert {*needed(with_extras(()))} == {"hiredis", "msgspec", "redis"}
    assert {"typer", "rich", "pyyaml"} <= {*needed(with_extras(["cli"]))} < {*needed(with_extras(["server"]))}


@pytest.mark.parametrize(
    ("missing", "command", "what", "extra"),
    [
        ("typer", "version", "the command line", "cli"),
        ("typer", "worker", "delayq worker", "server"),
        ("uvicorn", "worker", "delayq worker", "server"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(
    missing: str,
    command: str,
    what: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delitem(sys.modules, "delayq.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([command]) == 2
    assert capsys.readouterr().err == f"delayq: {what} needs the extra [{extra}]: pip install 'delayq[{extra}]'.\n"
