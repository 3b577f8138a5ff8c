from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.screen import Screen
from devtools.supervise import GaveUp, Program, Stopped, Supervisor
from tests.house.processes import ROOT, is_running, needs_proc
from tests.support.waiting import eventually

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
NOTES_ITS_END = """
import signal, sys, time
def end(*_):
    open("ends", "a").write(sys.argv[1] + " ")
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("ready", "a").write(".")
time.sleep(60)
"""

MakeProgram = Callable[..., Program]


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    def make(code: str, *arguments: str, patience: float = 10.0) -> Program:
        name = arguments[0] if arguments else "it"
        command = [sys.executable, "-c", code, *arguments]
        return Program(name, command, env=os.environ, cwd=tmp_path, patience=patience, screen=Screen())

    return make


def test_what_dies_is_started_again(program: MakeProgram) -> None:
    supervisor, part = Supervisor(Screen()), program("import time; time.sleep(60)")
    supervisor.start(part)
    first = part.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert supervisor.wait_until(lambda: part.pid not in (None, first), 10)
    supervisor.stop()
    assert part.pid is None


def test_what_says_that_its_configuration_is_wrong_is_not_started_again(program: MakeProgram) -> None:
    supervisor = Supervisor(Screen())
    supervisor.start(program("import sys; sys.exit(2)"))
    with pytest.raises(GaveUp, match=r"it refused to start \(exit code 2\)"):
        supervisor.wait_until(lambda: False, 10)


def test_what_keeps_dying_is_given_up(program: MakeProgram, tmp_path: Path) -> None:
    supervisor = Supervisor(Screen())
    supervisor.start(program("open('starts', 'a').write('.'); 1 / 0"))
    with pytest.raises(GaveUp, match=r"it died 6 times within a minute; exit code 1"):
        supervisor.wait_until(lambda: False, 30)
    assert (tmp_path / "starts").read_text() == "......"


def test_parts_stop_in_the_opposite_order(program: MakeProgram, tmp_path: Path) -> None:
    supervisor, ready = Supervisor(Screen()), tmp_path / "ready"
    for name in ("first", "second", "third"):
        supervisor.start(program(NOTES_ITS_END, name))
    assert supervisor.wait_until(lambda: ready.exists() and ready.read_text() == "...", 10)
    supervisor.stop()
    assert (tmp_path / "ends").read_text().split() == ["third", "second", "first"]


def test_what_does_not_stop_is_killed(program: MakeProgram, tmp_path: Path) -> None:
    supervisor, part = Supervisor(Screen()), program(STUBBORN + "open('on', 'w'); time.sleep(60)", patience=0.2)
    supervisor.start(part)
    assert supervisor.wait_until((tmp_path / "on").exists, 10)
    supervisor.stop()
    assert part.pid is None
    assert part.ended() == (-signal.SIGKILL, "signal 9")


# A supervisor as a process of its own, so that signals can be sent to it.
SUPERVISOR = """
import os, sys
from pathlib import Path
from devtools.screen import Screen
from devtools.supervise import Program, Stopped, Supervisor
screen = Screen()
supervisor = Supervisor(screen)
supervisor.listen()
part = Program("it", [sys.executable, "-c", sys.argv[1]], env=os.environ, cwd=Path(sys.argv[2]), patience=60, screen=screen)
supervisor.start(part)
try:
    supervisor.wait_until((Path(sys.argv[2]) / "on").exists)
    print(part.pid, flush=True)
    supervisor.wait_until(lambda: False)
except Stopped:
    print("stopping", flush=True)
    supervisor.stop()
"""


# Before it, a clock that moves only when a test makes the file "later": what is one wish is then no question of CPU.
CLOCK = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from devtools import supervise
later = Path(sys.argv[2]) / "later"
supervise.time = SimpleNamespace(
    monotonic=lambda: 1.1 * supervise.SAME_WISH_SECONDS * later.exists(), sleep=time.sleep
)
"""


def test_a_second_signal_hurries_a_slow_stop_and_a_doubled_one_does_not(tmp_path: Path) -> None:
    slow = STUBBORN + "open('on', 'w'); time.sleep(60)"
    command = [sys.executable, "-c", CLOCK + SUPERVISOR, slow, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        part = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)  # what tools do that signal a process and then its group
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.2)
        os.kill(part, 0)
        (tmp_path / "later").touch()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


@needs_proc
def test_parts_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        SUPERVISOR,
        "import time; open('on', 'w'); time.sleep(60)",
        str(tmp_path),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        part = int(process.stdout.readline())
        process.kill()
    eventually(lambda: not is_running(part), "the part ended")


def test_a_signal_ends_the_wait(program: MakeProgram) -> None:
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    supervisor = Supervisor(Screen())
    try:
        supervisor.listen()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Stopped):
            supervisor.wait_until(lambda: False, 10_000)
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
