"""What ./dev up shows of the events of its parts, to people and to programs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import pytest

from devtools.sentences import sentence
from tests.house.processes import ROOT
from tests.support.terminal import AtTerminal

pytestmark = pytest.mark.processes


def test_a_sentence_names_the_queue_first_and_an_unknown_event_shows_its_fields() -> None:
    assert sentence("redis_trouble", {"error": "away", "queue": 3}) == "queue 3: Redis error: away"
    assert sentence("new_event", {"queue": 3, "of": ["a", "b"]}) == "new_event  queue=3  of=a, b"


SHOW = """
import sys
from devtools.screen import Screen
screen = Screen(json="--json" in sys.argv)
for line in sys.stdin.read().splitlines() if not sys.stdin.isatty() else sys.argv[1].splitlines():
    screen.relay("worker", line + "\\n")
screen.say("a sentence")
screen.stopping()
screen.relay("worker", '{"event": "worker_stopped", "level": "info", "timestamp": "2026-01-01T00:00:00Z", "node": "n"}')
screen.stopped()
"""
EVENT = {
    "event": "circuit_open",
    "level": "warning",
    "timestamp": "2026-01-01T23:59:58.5Z",
    "route": "r",
    "reason": "no",
}
FAILED = {"event": "tick_failed", "level": "error", "queue": "3", "exception": "Traceback:\n  in work"} | {
    "timestamp": EVENT["timestamp"]
}
HOSTILE = EVENT | {"reason": "a\x1b]0;pwned\x07\r\u202e[red]x[/red] :smile:"}
LINES = "\n".join([*map(json.dumps, (EVENT, FAILED, HOSTILE)), "delayq worker: said before there is a log"])


def test_people_get_a_line_in_words_with_the_local_time() -> None:
    with AtTerminal([sys.executable, "-c", SHOW, LINES], cwd=ROOT) as terminal:
        assert terminal.wait() == 0
    local = f"{datetime.fromisoformat('2026-01-01T23:59:58.5Z').astimezone():%H:%M:%S}"
    plain = terminal.plain.splitlines()
    assert plain[:4] == [
        f"{local}  worker     route r: the circuit opened, only probes are sent: no",
        f"{local}  worker     queue 3: unexpected error in the pull job; it continues",
        "    Traceback:",
        "      in work",
    ]
    assert plain[4].endswith(r": a\x1b]0;pwned\x07\r\u202e[red]x[/red] :smile:")
    assert [line[8:] for line in plain[5:]] == [
        "  worker     delayq worker: said before there is a log",
        "  dev        a sentence",
        "  dev        everything stopped in order",  # and no line of each part's
    ]
    assert "\x1b[33m" in terminal.text  # a warning has a colour


def test_programs_get_what_the_parts_write() -> None:
    command = [sys.executable, "-c", SHOW]
    ran = subprocess.run(command, cwd=ROOT, input=LINES, capture_output=True, text=True, check=True)
    assert ran.stderr.startswith(LINES + "\ndev: a sentence\ndev: stopping\n")
    with AtTerminal([*command, LINES, "--json"], cwd=ROOT) as terminal:
        assert terminal.wait() == 0
    assert terminal.text.startswith(LINES + "\ndev: a sentence\ndev: stopping\n")
