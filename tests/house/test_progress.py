from __future__ import annotations

import subprocess
import sys

import pytest

from devtools.progress import CLEAR
from tests.house.processes import ROOT
from tests.support.terminal import AtTerminal
from tests.support.waiting import eventually

CALL = """
import os, pathlib, sys
from devtools.progress import call
sys.exit(call([sys.executable, "-uc", sys.argv[1]], cwd=pathlib.Path.cwd(), env=os.environ))
"""


def test_what_takes_long_shows_its_last_line_on_a_terminal_and_leaves_none() -> None:
    works = "print('Collecting a'); print('Collecting b'); input()"
    with AtTerminal([sys.executable, "-c", CALL, works], cwd=ROOT) as terminal:
        eventually(lambda: "s  Collecting b" in terminal.text, "the line follows")
        terminal.press_return()
        assert terminal.wait(20) == 0
    assert terminal.text.rpartition(CLEAR)[2] == ""
    assert terminal.text.count("\n") == 1  # the echo of Return


def test_what_failed_leaves_all_that_it_said() -> None:
    fails = "import sys; print('Collecting a'); print('no such package', file=sys.stderr); sys.exit(3)"
    with AtTerminal([sys.executable, "-c", CALL, fails], cwd=ROOT) as terminal:
        assert terminal.wait(20) == 3
    assert terminal.text.rpartition(CLEAR)[2] == "Collecting a\nno such package\n"


@pytest.mark.parametrize("code", [0, 3])
def test_elsewhere_it_speaks_for_itself(code: int) -> None:
    command = [sys.executable, "-c", CALL, f"import sys; print('done'); sys.exit({code})"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "done\n", "")
