"""Processes of the broker benchmarks: `alone NAME URL COUNT` prints seconds, `read NAME SOURCE TOPIC COUNT FILE` writes
arrivals as `benchmarks.load.consumer` does."""

from __future__ import annotations

import sys
import time
from array import array
from pathlib import Path

from benchmarks.brokers import kit, plain


def alone(name: str, url: str, count: str) -> None:
    """Send, and print how long it took."""
    print(kit(name).alone(url, list(plain(int(count)))))


def read(name: str, source: str, topic: str, count: str, path: str) -> None:
    """Consume, then write everything at once."""
    numbers: array[int] = array("q")

    def note(due: int, stamp: int) -> None:
        arrived = time.time_ns() // 1000
        numbers.extend((due, arrived, stamp or arrived // 1000))

    try:
        kit(name).read(source, topic, int(count), note)
    finally:
        Path(path).write_bytes(numbers.tobytes())


if __name__ == "__main__":
    if sys.argv[1] == "alone":
        alone(*sys.argv[2:])
    else:
        read(*sys.argv[2:])
