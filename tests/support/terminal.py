"""A program at a terminal: a pseudo-terminal is its input and output, and the one whose Ctrl-C it gets."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

#: What a step that takes more than two seconds prints, on a busy machine any of them.
_PROGRESS = re.compile(r"^(?:delayq|dev): [^:\n]+, \d+ s(: .*)?\n", re.MULTILINE)

#: Makes its standard input the controlling terminal of a session of its own, and becomes the program; the tests may run
#: under nohup, the program does not.
_TAKE = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def without_progress(text: str) -> str:
    """The standard error of a command without what its steps show of themselves."""
    return _PROGRESS.sub("", text)


class AtTerminal:
    """While the block runs, so does the program; then it is killed if it still does."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        self._said = b""
        self._hung_up = False
        env = {**(os.environ if env is None else env), "TERM": "xterm-256color", "COLUMNS": "160"}
        env.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE, *command], cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the end of a terminal, on Linux
            while not self._hung_up:
                if select.select([self._ours], [], [], 0.1)[0]:
                    self._said += os.read(self._ours, 65_536)

    @property
    def text(self) -> str:
        """Its output so far, with everything that moves a cursor or sets colors."""
        return self._said.decode(errors="replace").replace("\r\n", "\n")

    @property
    def plain(self) -> str:
        """The same without that; of a line that was written over only what was last."""
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).split("\n")
        return "\n".join(line.rpartition("\r")[2] for line in lines)

    def hang_up(self) -> None:
        """The window is closed."""
        self._hung_up = True
        self._reader.join()
        os.close(self._ours)

    def press_ctrl_c(self) -> None:
        """What the terminal makes a SIGINT of, for the program and what stands in its group."""
        os.write(self._ours, b"\x03")

    def wait(self, seconds: float | None = None) -> int:
        """Wait until the program ends and all of its output is read; return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if not self._hung_up:
            self.hang_up()


class Terminal(io.StringIO):
    """A text that programs take for a terminal."""

    def isatty(self) -> bool:
        return True
