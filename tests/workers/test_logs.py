"""What the worker's logs say of an error, and what they keep to themselves."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from tests.support.service import ROOT

CODE = """
import structlog
from workers.telemetry.logs import configure

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
    if not terminal:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        said = ran.stderr
        (frames,) = (one["frames"] for one in json.loads(said)["exception"])
        assert [frame["name"] for frame in frames] == ["<module>", "work"]
    else:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(command, cwd=ROOT, stderr=theirs)
        os.close(theirs)
        said = ""
        try:
            while some := os.read(ours, 65_536):
                said += some.decode()
        except OSError:  # the end of a terminal, on Linux
            pass
        finally:
            os.close(ours)
            assert process.wait(60) == 0
        assert "in work" in said
    assert "something with 6 letters" in said
    assert "canary" not in said
