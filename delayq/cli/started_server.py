"""The address of the server that ./dev up started, for the command line of the same virtual environment.

The file is valid only while its writer holds the lock on it, so a file left behind by a killed process names no server.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "delayq-up"


def _note() -> Path:
    return Path(sys.prefix) / NAME


@contextmanager
def noted(url: str) -> Iterator[bool]:
    """Make `noted_url` return this address while the block runs.

    Yields False if another server is noted already, or if the file cannot be written.
    """
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
    """Return the address of the noted server while that server runs."""
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
