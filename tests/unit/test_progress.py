"""A step that takes long shows what it does and how far it is."""

from __future__ import annotations

import io
import subprocess
import sys

from delayq.base.progress import CLEAR, Progress
from delayq.testing.manual_clock import ManualClock
from tests.support.service import ROOT
from tests.support.waiting import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_a_line_comes_after_two_seconds_and_every_ten() -> None:
    clock, log = ManualClock(), io.StringIO()

    def lines_at(seconds: int, count: int) -> list[str]:
        clock.advance(1_000 * seconds - clock.monotonic())
        eventually(lambda: len(log.getvalue().splitlines()) == count, f"{count} lines after {seconds} s")
        clock.wait_for_waiters()
        return log.getvalue().splitlines()

    def look(progress: Progress) -> None:
        raise OSError("what cannot be looked at is not shown")

    with Progress("scheduling", "rows", name="dev", look=look, stream=log, clock=clock) as progress:
        clock.wait_for_waiters()
        assert lines_at(2, 1) == ["dev: scheduling, 2 s"]
        progress.count(0, 5_000)
        assert lines_at(10, 2)[1:] == ["dev: scheduling, 10 s: 0 of 5,000 rows (0 %)"]
        progress.count(1_800, 5_000, "3 rejected")
        assert lines_at(20, 3)[2:] == [
            "dev: scheduling, 20 s: 1,800 of 5,000 rows (36 %), 100/s, 32 s left, 3 rejected"
        ]
        progress.count(3_600)
        assert lines_at(38, 4)[3:] == ["dev: scheduling, 38 s: 3,600 rows, 100/s"]
        assert lines_at(40, 5)[4].startswith("dev: scheduling, 40 s")
    assert len(log.getvalue().splitlines()) == 5  # the end prints nothing


def test_a_short_step_prints_nothing_without_a_terminal() -> None:
    clock, log = ManualClock(), io.StringIO()
    with Progress("step", stream=log, clock=clock):
        clock.wait_for_waiters()
        clock.advance(1_999)
    assert log.getvalue() == ""


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
