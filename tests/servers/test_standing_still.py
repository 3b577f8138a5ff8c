"""A process that is paused by a test does nothing more once the pause has begun."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.process import stand_still, standing_still

THREADS = 32
PROGRAM = f"""
import threading
def wait():
    while not threading.Event().wait(0.001):
        pass
for _ in range({THREADS}):
    threading.Thread(target=wait, daemon=True).start()
print("ready", flush=True)
wait()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a /proc: run it on Linux")
def test_no_thread_of_a_process_that_stands_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_it_late(pid: int, number: int) -> None:  # as a thread does that gets no core at once
        threading.Timer(0.1, os.kill, (pid, number)).start()

    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with monkeypatch.context() as patched:
                patched.setattr("testbed.process.os", SimpleNamespace(kill=take_it_late))
                stand_still(process.pid)
            stats = [stat.read_text() for stat in Path(f"/proc/{process.pid}/task").glob("*/stat")]
            assert [stat.rpartition(")")[2].split()[0] for stat in stats] == ["T"] * (THREADS + 1)
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a /proc: run it on Linux")
def test_a_process_goes_on_behind_it_unless_it_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with standing_still(process.pid):
            assert state_of(process.pid) == "T"
        assert state_of(process.pid) != "T"
        with standing_still(process.pid):
            process.kill()
            process.wait()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_that_is_gone_cannot_stand_still() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        stand_still(process.pid)
