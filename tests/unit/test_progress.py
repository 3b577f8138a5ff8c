"""A step that takes long shows what it does and how far it is."""

from __future__ import annotations

import subprocess
import sys

from delayq.base.progress import CLEAR, Progress
from delayq.testing.manual_clock import ManualClock
from tests.support.service import ROOT
from tests.support.terminal import Terminal
from tests.support.waiting import eventually


def test_a_terminal_has_one_line_that_others_can_print_above_and_that_disappears() -> None:
    clock, terminal = ManualClock(), Terminal()
    with Progress("step", stream=terminal, clock=clock) as progress:
        eventually(lambda: "step, 0 s" in terminal.getvalue(), "the line is there at once")
        progress.show("one\x1b]0;evil\x07")
        clock.advance(250)
        eventually(lambda: "step, 0 s: one ]0;evil" in terminal.getvalue(), "the line is redrawn")
        with progress.hidden():
            assert terminal.getvalue().endswith(CLEAR)
            terminal.write("printed\n")
    assert terminal.getvalue().endswith(CLEAR)
    assert "\n" not in terminal.getvalue().replace("printed\n", "")


def test_it_needs_no_package() -> None:
    """./dev imports it before anything is installed."""
    lines = "import sys; sys.path.insert(0, sys.argv[1]); import delayq.base.progress"
    subprocess.run([sys.executable, "-I", "-S", "-c", lines, str(ROOT)], check=True)
