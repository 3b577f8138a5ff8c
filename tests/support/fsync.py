"""A server whose append-only file reaches the disk when a test lets it, and the power cut that shows what has."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.preload import shim

SOURCE = Path(__file__).with_name("fsync_shim.c")
FOREVER = 3_600_000


class Disk:
    """How long each sync of an append-only file takes, and how much of the files has been synced."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "told"
        self._told.write_bytes(bytes(16))
        self._sizes = folder / "told.sizes"
        with self._told.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 16)

    @property
    def environment(self) -> dict[str, str]:
        """For the process that is to have this disk."""
        return {"FSYNC_SHIM": str(self._told)}

    def take(self, milliseconds: int = FOREVER) -> None:
        """From now on a sync takes so long."""
        self._map[:8] = struct.pack("=q", milliseconds)

    @property
    def waiting(self) -> int:
        """How many syncs are under way."""
        (count,) = struct.unpack("=q", self._map[8:16])
        return int(count)

    def synced(self) -> dict[str, int]:
        """What of each file is on the disk, in bytes; files by name."""
        sizes: dict[str, int] = {}
        if self._sizes.exists():
            for line in self._sizes.read_text().splitlines():
                size, _, path = line.partition(" ")
                sizes[Path(path).name] = int(size)
        return sizes

    def close(self) -> None:
        self._map.close()


@contextmanager
def slow_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Servers that are started within have this disk; skips where that cannot be."""
    library = shim(SOURCE, folder)
    disk = Disk(folder)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        for name, value in disk.environment.items():
            patch.setenv(name, value)
        yield disk
    disk.close()


def cut_off(disk: Disk, data: Path) -> int:
    """What a power cut leaves of the append-only files of a server that was killed; how many bytes it took."""
    lost = 0
    synced: Any = disk.synced()
    for path in (data / "appendonlydir").glob("*.incr.aof"):
        size = path.stat().st_size
        kept = min(size, synced.get(path.name, 0))
        with path.open("r+b") as file:
            file.truncate(kept)
        lost += size - kept
    return lost
