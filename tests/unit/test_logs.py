"""What the logs of the services say of an error, and what they keep to themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.service import ROOT
from tests.support.terminal import AtTerminal

CODE = """
import structlog
from delayq.telemetry.logs import configure

configure("info")

def work(url):
    password = url[8:]
    raise LookupError(f"something with {len(password)} letters")

try:
    work("redis://canary")
except LookupError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.parametrize("terminal", [False, True], ids=["json", "terminal"])
def test_a_traceback_has_its_lines_but_no_values(terminal: bool) -> None:
    command = [sys.executable, "-c", CODE]
    if terminal:
        with AtTerminal(command, cwd=ROOT) as shown:
            assert shown.wait() == 0
        traceback = said = shown.text
    else:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr
        traceback = json.loads(said)["exception"]
    assert "in work\n" in traceback
    assert "something with 6 letters" in said
    assert "canary" not in said


def test_events_go_by_the_level_and_other_libraries_warn_only() -> None:
    code = """
import logging, structlog
from delayq.telemetry.logs import configure
configure("debug")
structlog.get_logger().debug("ours")
logging.getLogger("theirs").info("unheard")
logging.getLogger("theirs").warning("heard: %s", 1)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    first, second = map(json.loads, ran.stderr.splitlines())
    assert {first.pop("timestamp"), second.pop("timestamp")}
    assert first == {"event": "ours", "level": "debug"}
    assert second == {"event": "heard: 1", "level": "warning", "logger": "theirs"}
