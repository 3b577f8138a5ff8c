"""Log lines on their way to a descriptor, which may be full, or a pipe that nobody reads."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque

__all__ = ["LogLines"]

MOST = 10_000
AT_EXIT = 1.0


class LogLines:
    """As much of a text stream as loggers use: `write` neither blocks nor raises.

    A thread writes what waits. What cannot be written, or is more than `most` lines, is dropped, and counted.
    """

    def __init__(self, descriptor: int, most: int = MOST) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._most = most
        self._condition = threading.Condition()
        self._lines: deque[str] = deque()
        self._writing = False
        threading.Thread(target=self._run, name="log", daemon=True).start()
        atexit.register(self.drain)

    def write(self, text: str) -> int:
        """Take a line; its length."""
        with self._condition:
            if len(self._lines) < self._most:
                self._lines.append(text)
                self._condition.notify_all()
            else:
                self.dropped += 1
        return len(text)

    def flush(self) -> None:
        """The thread does."""

    def drain(self, seconds: float = AT_EXIT) -> None:
        """Wait until all is written, at most so long."""
        with self._condition:
            self._condition.wait_for(lambda: not self._lines and not self._writing, seconds)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._writing = False
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._lines)
                lines = list(self._lines)
                self._lines.clear()
                self._writing = True
            data = "".join(lines).encode(errors="backslashreplace")
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                with self._condition:
                    self.dropped += len(lines)
