from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.screen import Screen
from devtools.supervise import GaveUp, Program, Supervisor
from tests.house.processes import ROOT, is_running, needs_proc
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

pytestmark = pytest.mark.processes

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
NOTES_ITS_END = """
import signal, sys, time
def end(*_):
    open("ends", "a").write(sys.argv[1] + " ")
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("ready", "a").write(".")
time.sleep(600)
"""

MakeProgram = Callable[..., Program]


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    def make(code: str, *arguments: str, patience: float = PATIENCE) -> Program:
        name = arguments[0] if arguments else "it"
        command = [sys.executable, "-c", code, *arguments]
        return Program(name, command, env=os.environ, cwd=tmp_path, patience=patience, screen=Screen())

    return make


def test_what_dies_is_started_again(program: MakeProgram) -> None:
    supervisor, part = Supervisor(Screen()), program("import time; time.sleep(600)")
    supervisor.start(part)
    first = part.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    supervisor.wait_until(lambda: part.pid not in (None, first))
    supervisor.stop()
    assert part.pid is None


@pytest.mark.parametrize(
    ("code", "reason", "starts"),
    [
        ("import sys; sys.exit(2)", r"it refused to start \(exit code 2\)", 1),  # its configuration is wrong
        ("1 / 0", "it died 6 times within a minute; exit code 1", 6),
    ],
)
def test_what_cannot_run_is_given_up(program: MakeProgram, tmp_path: Path, code: str, reason: str, starts: int) -> None:
    supervisor = Supervisor(Screen())
    supervisor.start(program(f"open('starts', 'a').write('.'); {code}"))
    with pytest.raises(GaveUp, match=reason):
        supervisor.wait_until(lambda: False)
    assert (tmp_path / "starts").read_text() == "." * starts


def test_parts_stop_in_the_opposite_order_and_one_that_does_not_stop_is_killed(
    program: MakeProgram, tmp_path: Path
) -> None:
    supervisor, ready = Supervisor(Screen()), tmp_path / "ready"
    for name in ("first", "second", "third"):
        supervisor.start(program(NOTES_ITS_END, name))
    stubborn = program(STUBBORN + "open('on', 'w'); time.sleep(600)", patience=0.2)
    supervisor.start(stubborn)
    supervisor.wait_until(lambda: ready.exists() and ready.read_text() == "..." and (tmp_path / "on").exists())
    supervisor.stop()
    assert (tmp_path / "ends").read_text().split() == ["third", "second", "first"]
    assert stubborn.pid is None
    assert stubborn.ended() == (-signal.SIGKILL, "signal 9")


# A supervisor as a process of its own, so that signals can be sent to it.
SUPERVISOR = """
import os, sys
from pathlib import Path
from devtools.screen import Screen
from devtools.supervise import Program, Stopped, Supervisor
screen = Screen()
supervisor = Supervisor(screen)
supervisor.listen()
part = Program("it", [sys.executable, "-c", sys.argv[1]], env=os.environ, cwd=Path(sys.argv[2]), patience=600, screen=screen)
supervisor.start(part)
try:
    supervisor.wait_until((Path(sys.argv[2]) / "on").exists)
    print(part.pid, flush=True)
    supervisor.wait_until(lambda: False)
except Stopped:
    print("stopping", flush=True)
    supervisor.stop()
"""


# Its clock moves only when the test makes the file "later": whether two signals count as one does not depend on CPU.
CLOCK = """
import signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from devtools import supervise
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
later = Path(sys.argv[2]) / "later"
supervise.time = SimpleNamespace(
    monotonic=lambda: 1.1 * supervise.SAME_WISH_SECONDS * later.exists(), sleep=time.sleep
)
"""


def test_a_second_signal_hurries_a_slow_stop_and_a_doubled_one_does_not(tmp_path: Path) -> None:
    slow = STUBBORN + "open('on', 'w'); time.sleep(600)"
    command = [sys.executable, "-c", CLOCK + SUPERVISOR, slow, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        part = int(process.stdout.readline())
        process.send_signal(signal.SIGHUP)  # the terminal is closed
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)  # like tools that signal a process and then its group
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.2)
        os.kill(part, 0)
        (tmp_path / "later").touch()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@needs_proc
def test_parts_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        SUPERVISOR,
        "import time; open('on', 'w'); time.sleep(600)",
        str(tmp_path),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        part = int(process.stdout.readline())
        process.kill()
    eventually(lambda: not is_running(part), "the part ended")
