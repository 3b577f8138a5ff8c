"""Programs that take long, such as installers and compilers, run with their last line shown.

Standard library only, because ./dev uses it before it has installed anything.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from delayq.base.progress import Progress


class Ran(NamedTuple):
    """The exit status of a program, and what it printed to both of its outputs; `late` if it was killed after its time."""

    status: int
    output: str
    late: bool


def run(
    words: Sequence[str],
    progress: Progress | None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Ran:
    """Run a program without input; `progress`, if any, shows the last line that it printed. It is killed after `seconds`."""
    lines: list[str] = []
    late = threading.Event()
    with subprocess.Popen(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds or 0, end)
        if seconds is not None:
            timer.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if progress is not None and line.strip():
                    progress.show(line)
        finally:
            timer.cancel()
    return Ran(process.returncode, "".join(lines), late.is_set())
