"""Lets whoever needs a server or a tool wait while another process still fetches it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from delayq.base.progress import Progress


@contextmanager
def fetching(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of `name` in `folder` during a fetch: of two fetches at a time the second finds everything there."""
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_file(folder, name).open("w") as lock:
        _lock(lock, fcntl.LOCK_EX, name)
        yield


def wait_for_fetch(folder: Path, name: str) -> None:
    """Return once no process fetches `name` into `folder`; each fetch has an end of its own."""
    try:
        lock = _lock_file(folder, name).open()
    except FileNotFoundError:
        return
    with lock:
        _lock(lock, fcntl.LOCK_SH, name)


def _lock(lock: IO[str], kind: int, name: str) -> None:
    with Progress(f"waiting for another process that fetches {name}", name="dev"):
        fcntl.flock(lock, kind)


def _lock_file(folder: Path, name: str) -> Path:
    return folder / f".{name}.lock"
