"""A service ends, whatever has become of who reads its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import ROOT
from tests.support.stuck_output import StuckOutput

pytestmark = pytest.mark.processes

BEGIN = """
import logging, sys, threading, time
from delayq.telemetry.ending import run, say_last
from delayq.telemetry.logs import configure

def main():
    configure("info")
    sys.stdin.readline()
    WHAT
    return 7

run(main)
"""
#: What a program may be at when it ends, and its status.
LAST = {
    "nothing": ("pass", 7),
    "log-lines": ("[logging.warning('line') for _ in range(100)]; time.sleep(0.1)", 7),
    "output-in-a-buffer": ("sys.stdout.write('x' * 100)", 7),
    "a-sentence": ("say_last('x' * 10_000)", 7),
    "an-exception": ("raise LookupError('x' * 10_000)", 1),
    "a-thread-that-writes": ("threading.Thread(target=lambda: print('x' * 10_000)).start(); time.sleep(0.1)", 7),
    "a-thread-that-fails": ("threading.Thread(target=lambda: 1 / 0).start(); time.sleep(0.1)", 7),
}


@pytest.mark.parametrize("last", LAST)
def test_an_output_that_nobody_reads_does_not_hold_up_the_end(tmp_path: Path, last: str) -> None:
    what, status = LAST[last]
    with StuckOutput(tmp_path / "output") as output:
        code = BEGIN.replace("WHAT", what)
        with output.path.open("wb", buffering=0) as blocking:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": ""},  # else what it prints never waits in a buffer
                stdin=subprocess.PIPE,
                stdout=blocking,
                stderr=blocking,
            )
        output.stop_reading()
        process.communicate(b"go on\n")
        assert process.returncode == status


def test_where_somebody_reads_nothing_is_lost() -> None:
    code = BEGIN.replace("WHAT", "sys.stdout.write('kept'); logging.warning('logged'); say_last('said'); 1 / 0")
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input="go on\n", capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "kept")
    assert '"event": "logged"' in ran.stderr and "said\n" in ran.stderr and "ZeroDivisionError" in ran.stderr
