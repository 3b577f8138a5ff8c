"""A command that takes long, followed on a terminal. Standard library only: nothing is installed yet."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["call"]

REDRAW_SECONDS = 0.1
CLEAR = "\r\x1b[2K"
WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def call(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run it; its exit code. On a terminal one line shows since when it runs and what it said last, and goes in the end.

    All that it said stays only if it failed. Elsewhere it speaks for itself.
    """
    if not sys.stderr.isatty():
        return subprocess.call(command, cwd=cwd, env=env)
    began = time.monotonic()
    said: list[str] = []
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, said), daemon=True)
        reader.start()
        try:
            turn = 0
            while reader.is_alive():
                last = said[-1].strip() if said else ""
                line = f"{WHEEL[turn % len(WHEEL)]} {time.monotonic() - began:3.0f} s  {last}"
                _show(CLEAR + line[: shutil.get_terminal_size().columns - 1])
                turn += 1
                reader.join(REDRAW_SECONDS)
        finally:
            _show(CLEAR)
    if process.returncode != 0:
        _show("".join(said))
    return process.returncode


def _read(output: IO[str], said: list[str]) -> None:
    for line in output:
        if line.strip():
            said.append(line)


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
