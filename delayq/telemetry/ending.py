"""The end of a service, which a reader that has stopped reading its output cannot delay."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

#: s for the last lines.
LAST_LINES: Final = 2.0


def run(main: Callable[[], int]) -> NoReturn:
    """Run the program and end the process with its status. The last lines of log and output have LAST_LINES seconds.

    Python itself would wait without an end for locks and buffers of output, and for threads that are writing.
    """
    try:
        status = main()
    except Exception:
        say_last(traceback.format_exc().rstrip())
        status = 1
    write_last(flush, status)
    os._exit(status)


def say_last(text: str) -> None:
    """Write lines to standard error, and wait at most LAST_LINES seconds for it."""

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    _ends_in_time(write)


def write_last(write: Callable[[], None], status: int) -> None:
    """Let a program that was asked to end write its last output. If nobody reads that, it ends with this status here."""
    if not _ends_in_time(write):
        os._exit(status)


def flush() -> None:
    """Write the lines that wait in the log, and in the buffers of output and errors."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()


def _ends_in_time(function: Callable[[], None]) -> bool:
    """Return whether the function returned in time; otherwise it is left running."""
    thread = threading.Thread(target=function, name="last-lines", daemon=True)
    thread.start()
    thread.join(LAST_LINES)
    return not thread.is_alive()
