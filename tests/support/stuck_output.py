"""A full pipe that nobody reads, like that of a log driver that has stalled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self


class StuckOutput:
    """A named pipe at a path, which a program may have as its output; `stop_reading` fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def said(self) -> bytes:
        """What was written and not read before."""
        try:
            return os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return b""

    def stop_reading(self) -> None:
        """Fill it to the last byte."""
        try:
            while True:
                os.write(self.descriptor, b"x")
        except BlockingIOError:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)
