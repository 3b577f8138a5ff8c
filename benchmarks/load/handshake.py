"""A process that takes its time to start is told what to do when it is there: its start is in nobody's time or CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.harness import wait_for

__all__ = ["Handshake"]

#: s that either waits for the other.
PATIENCE: Final = 120.0


class Handshake:
    """By files: one side waits until the other is `ready`, and tells it; the other waits to be told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready, self._part = path.with_name(f"{path.name}.ready"), path.with_name(f"{path.name}.part")

    @property
    def argument(self) -> str:
        """As the other side is given it."""
        return str(self._path)

    def ready(self) -> bool:
        """Whether the other side is there."""
        return self._ready.exists()

    def tell(self, what: bytes) -> None:
        """Let it begin."""
        self._part.write_bytes(what)
        self._part.rename(self._path)

    def wait(self) -> bytes:
        """Say that this side is there, and wait to be told."""
        self._ready.touch()
        wait_for("what to do", self._path.exists, seconds=PATIENCE)
        return self._path.read_bytes()
