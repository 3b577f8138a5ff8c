"""Waiting with an end: a program must not hang, however busy the machine is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

#: Seconds that anything may take that happens in a second or two on a quiet machine.
PATIENCE: Final = 300.0
_STEP: Final = 0.02


class GaveUp(Exception):
    """Something did not happen in time; the text names it."""


def wait_until(look: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Look again in short steps until the answer is true. Raises GaveUp after so many seconds."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() >= deadline:
            raise GaveUp(f"gave up after {seconds:.0f} s of waiting: {what}")
        time.sleep(_STEP)


def join(threads: Sequence[threading.Thread], seconds: float = PATIENCE) -> None:
    """Wait for the end of threads. Raises GaveUp if one of them still runs after so many seconds."""
    wait_until(lambda: not any(thread.is_alive() for thread in threads), "threads end", seconds)
