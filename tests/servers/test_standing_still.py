"""A process that a test stops does nothing more: without this, tests of stopped workers would prove nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.process import stand_still, standing_still

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a /proc: run it on Linux")

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


def states_of(pid: int) -> set[str]:
    """The states of its threads; T is stopped."""
    stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    assert len(stats) == THREADS + 1
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def test_no_thread_runs_until_the_process_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_later(pid: int, number: int) -> None:  # like a thread that gets no core at once
        threading.Timer(0.1, os.kill, (pid, number)).start()

    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with standing_still(process.pid):
                assert states_of(process.pid) == {"T"}
            assert states_of(process.pid) != {"T"}
            with monkeypatch.context() as patched:
                patched.setattr("testbed.process.os", SimpleNamespace(kill=stop_later))
                stand_still(process.pid)
            assert states_of(process.pid) == {"T"}
        finally:
            process.kill()
