"""What ./dev up shows of its parts."""

from __future__ import annotations

import json
import sys

import pytest

from tests.house.processes import ROOT
from tests.support.terminal import AtTerminal

pytestmark = pytest.mark.processes

SHOW = """
import sys
from devtools.screen import Screen
Screen().relay("worker", sys.argv[1] + "\\n")
"""
HOSTILE = {
    "event": "circuit_open",
    "level": "warning",
    "timestamp": "2026-01-01T23:59:58.5Z",
    "route": "r",
    "reason": "a\x1b]0;pwned\x07\r\u202e[red]x[/red] :smile:",
}


def test_nothing_of_a_log_reaches_the_terminal_as_an_order() -> None:
    with AtTerminal([sys.executable, "-c", SHOW, json.dumps(HOSTILE)], cwd=ROOT) as terminal:
        assert terminal.wait() == 0
    assert terminal.plain.rstrip().endswith(r": a\x1b]0;pwned\x07\r\u202e[red]x[/red] :smile:")
