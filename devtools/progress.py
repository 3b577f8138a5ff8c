"""A command that takes long, followed while it runs. Standard library only: nothing is installed yet."""

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

REDRAW_SECONDS = 0.1  # on a terminal
REPORT_SECONDS = 10.0  # elsewhere
CLEAR = "\r\x1b[2K"
WHEEL = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def call(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run the command and return its exit status. If it fails, print all of its output.

    While it runs, a terminal has one line with the seconds and the last line of output, which disappears at the end.
    A log file gets such a line every 10 s.
    """
    began = time.monotonic()
    output: list[str] = []
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, output), daemon=True)
        reader.start()
        follow = _redraw if sys.stderr.isatty() else _report
        follow(reader, output, began)
    if process.returncode != 0:
        _show("".join(output))
    return process.returncode


def _redraw(reader: threading.Thread, output: list[str], began: float) -> None:
    turn = 0
    try:
        while reader.is_alive():
            line = f"{WHEEL[turn % len(WHEEL)]} {_progress(output, began)}"
            _show(CLEAR + line[: shutil.get_terminal_size().columns - 1])
            turn += 1
            reader.join(REDRAW_SECONDS)
    finally:
        _show(CLEAR)


def _report(reader: threading.Thread, output: list[str], began: float) -> None:
    reader.join(REPORT_SECONDS)
    while reader.is_alive():
        _show(f"dev: {_progress(output, began)}\n")
        reader.join(REPORT_SECONDS)


def _progress(output: list[str], began: float) -> str:
    return f"{time.monotonic() - began:3.0f} s  {output[-1].strip()[:100] if output else ''}"


def _read(output: IO[str], lines: list[str]) -> None:
    lines.extend(line for line in output if line.strip())


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
