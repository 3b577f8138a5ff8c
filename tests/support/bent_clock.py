"""A wall clock that a test sets wrong in other processes, while they run."""

from __future__ import annotations

import mmap
import shlex
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.preload import shim

SOURCE = Path(__file__).with_name("clockshim.c")
LAYOUT = struct.Struct("=qqq")


class BentClock:
    """The clock of all processes that were started with `environment`, or by `wrap`; correct until it is set.

    Skips the test where nothing can be preloaded.
    """

    def __init__(self, folder: Path, name: str = "clock") -> None:
        self._library = shim(SOURCE, folder)
        self._folder = folder
        self._path = folder / name
        self._path.write_bytes(LAYOUT.pack(0, 0, 0))
        with self._path.open("r+b") as file:
            self._bend = mmap.mmap(file.fileno(), LAYOUT.size)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process has to be started with."""
        return {"LD_PRELOAD": str(self._library), "DELAYQ_TEST_CLOCK": str(self._path)}

    def wrap(self, binary: Path) -> Path:
        """A program that runs `binary` by this clock."""
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        wrapped = self._folder / f"{binary.name}-by-{self._path.name}"
        wrapped.write_text(f'#!/bin/sh\nexec env {words} {shlex.quote(str(binary))} "$@"\n')
        wrapped.chmod(0o755)
        return wrapped

    def set(self, ms: int) -> None:
        """Step it: so many ms ahead of the true time, behind it if below 0."""
        self._bend[:] = LAYOUT.pack(ms * 1_000_000, 0, 0)

    def slew(self, ppm: int) -> None:
        """Let it run too fast from now on, by so many parts in a million; too slowly if below 0."""
        self._bend[:] = LAYOUT.pack(0, ppm, time.time_ns())

    def now(self) -> int:
        """Its current time, Unix ms."""
        offset, ppm, since = LAYOUT.unpack(self._bend[:])
        true = time.time_ns()
        bent: int = true + offset + ((true - since) // 1_000_000 * ppm if ppm else 0)
        return bent // 1_000_000
