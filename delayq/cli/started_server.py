"""The server that ./dev up started, noted where the command line of the same virtual environment finds it.

The note counts while its writer holds the lock on it: one that was left behind by a kill names no server.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["noted", "noted_url"]

NAME: Final = "delayq-up"


def _note() -> Path:
    return Path(sys.prefix) / NAME


@contextmanager
def noted(url: str) -> Iterator[bool]:
    """While the block runs, `noted_url` is this; False if another server is noted already, or nothing can be."""
    try:
        file = os.open(_note(), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        os.ftruncate(file, 0)
        os.write(file, url.encode())
        yield True
    finally:
        os.close(file)


def noted_url() -> str | None:
    """The server that is noted, while it runs."""
    try:
        file = os.open(_note(), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(file, 4096).decode() or None
    else:
        return None
    finally:
        os.close(file)
