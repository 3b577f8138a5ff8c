"""Log lines on their way to a descriptor, which may be full, or a pipe that nobody reads."""

from __future__ import annotations

import atexit
import logging
import os
import queue
from logging.handlers import QueueHandler, QueueListener

__all__ = ["NonblockingHandler"]

MOST = 10_000
AT_EXIT = 1.0


class NonblockingHandler(QueueHandler):
    """Hands each record, formatted, to a thread that writes it as a line: `emit` neither waits nor raises.

    What cannot be written, or is more than `most` lines that wait, is dropped, and counted.
    """

    def __init__(self, descriptor: int, most: int = MOST) -> None:
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(most)
        super().__init__(self._waiting)
        self._writer = _Writer(descriptor)
        self._full = 0
        QueueListener(
            self._waiting, self._writer
        ).start()  # its thread is a daemon, so a pipe that is full ends with us
        atexit.register(self.drain)

    @property
    def dropped(self) -> int:
        """How many lines nobody will see."""
        return self._full + self._writer.failed

    def enqueue(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._full += 1

    def drain(self, seconds: float = AT_EXIT) -> None:
        """Wait until all is written, at most so long."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, seconds)


class _Writer(logging.Handler):
    """Writes lines to a descriptor. Not a StreamHandler: a stream keeps what a full disk refused, and tries it again."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.failed = 0
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        data = f"{record.getMessage()}\n".encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.failed += 1
