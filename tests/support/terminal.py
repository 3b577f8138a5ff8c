"""A program at a terminal: a pseudo-terminal is its input and output, and the one whose Ctrl-C it gets."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

__all__ = ["AtTerminal"]

#: Makes its standard input the controlling terminal of a session of its own, and becomes the program.
_TAKE = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


class AtTerminal:
    """While the block runs, so does the program; then it is killed if it still does."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        self._said = b""
        env = {**(os.environ if env is None else env), "TERM": "xterm-256color", "COLUMNS": "160"}
        env.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE, *command], cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while some := os.read(self._ours, 65_536):
                self._said += some
        except OSError:  # the end of a terminal, on Linux
            pass

    @property
    def text(self) -> str:
        """What it has said until now, with all that moves a cursor or colours."""
        return self._said.decode(errors="replace").replace("\r\n", "\n")

    def press_return(self) -> None:
        """End a line of input."""
        os.write(self._ours, b"\n")

    def press_ctrl_c(self) -> None:
        """What the terminal makes a SIGINT of, for the program and what stands in its group."""
        os.write(self._ours, b"\x03")

    def wait(self, seconds: float) -> int:
        """Wait until it ends and all is read; its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        os.close(self._ours)
