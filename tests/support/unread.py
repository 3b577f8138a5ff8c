"""What lies at a server on this machine that does not read: a look at the system's table of connections."""

from __future__ import annotations

from pathlib import Path

import pytest

CONNECTIONS = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
ESTABLISHED = "01"


def unread(port: int) -> dict[str, int]:
    """Bytes that lie unread at the server that listens there, by the other end of each of its connections."""
    tables = [path.read_text().splitlines()[1:] for path in CONNECTIONS if path.exists()]
    if not tables:
        pytest.skip(f"needs {CONNECTIONS[0]}: run it on Linux")
    lines = [line.split() for table in tables for line in table]
    return {
        line[2]: int(line[4].partition(":")[2], 16)
        for line in lines
        if line[1].endswith(f":{port:04X}") and line[3] == ESTABLISHED
    }
