"""Log lines on their way to a descriptor, which may be full, or a pipe that nobody reads."""

from __future__ import annotations

import logging
import os
import queue
import threading
from logging.handlers import QueueHandler

MOST = 10_000
AT_EXIT = 1.0


class NonblockingHandler(QueueHandler):
    """Passes each record, formatted, to a thread that writes it as a line: `emit` neither waits nor raises.

    Lines that cannot be written, or exceed `most` waiting lines, are dropped and counted.
    """

    def __init__(self, descriptor: int, most: int = MOST) -> None:
        self._waiting: queue.Queue[logging.LogRecord] = queue.Queue(most)
        super().__init__(self._waiting)
        self._descriptor = descriptor
        self._full = self._failed = 0
        # Its thread is a daemon, so a pipe that is full ends with us. It writes without any lock that `logging` knows:
        # `logging.shutdown` takes each handler's lock, and would wait for such a pipe without an end.
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    @property
    def dropped(self) -> int:
        """The number of lost lines."""
        return self._full + self._failed

    def enqueue(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._full += 1

    def drain(self, seconds: float) -> None:
        """Wait until all lines are written, for at most this time."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, seconds)

    def flush(self) -> None:
        """Called by `logging.shutdown`: the last lines get a moment."""
        self.drain(AT_EXIT)

    def _write_all(self) -> None:
        while True:
            record = self._waiting.get()
            self._write(f"{record.getMessage()}\n".encode(errors="backslashreplace"))
            self._waiting.task_done()

    def _write(self, data: bytes) -> None:
        """Write to the descriptor. A stream would keep the bytes that a full disk refused, and write them later."""
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self._failed += 1
