"""What the tests of real processes share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

needs_proc = pytest.mark.skipif(
    sys.platform != "linux", reason="looks at processes by /proc and PR_SET_PDEATHSIG: run it on Linux"
)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie (a container may have nobody to collect those)."""
    return _stat(pid)[:1] not in ([], ["Z"])


def children_of(pid: int) -> list[int]:
    """The running children of a process, oldest first."""
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [child for child in pids if _stat(child)[1:2] == [str(pid)] and is_running(child)]


def command_of(pid: int) -> str:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()


def _stat(pid: int) -> list[str]:
    """State, parent and the rest."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
