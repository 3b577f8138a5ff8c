"""A process that reads topics' streams as a consumer does, and writes down when each message arrived.

Arguments: Redis URL, topics with commas between, how many messages, the file to write to, which is made when it begins to
read. Of each message it writes three numbers: its due (Unix ms), its arrival (Unix µs) and the time in its entry's id (Unix
ms).
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from delayq.store.commands import plain
from delayq.store.connect.store import Store

__all__ = ["Arrival", "arrivals"]

PATIENCE_MS: Final = 5_000


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """When a message was due (Unix ms), when the consumer had it (µs), and when its entry was made (ms)."""

    due: int
    arrived: int
    entry: int

    @property
    def late(self) -> float:
        """ms between due and arrival."""
        return (self.arrived - 1000 * self.due) / 1000

    @property
    def entry_late(self) -> int:
        """ms between due and entry; the clock of Redis, whole ms."""
        return self.entry - self.due


def arrivals(path: Path) -> Iterator[Arrival]:
    """Read what a consumer wrote."""
    numbers = array("q", path.read_bytes())
    for at in range(0, len(numbers), 3):
        yield Arrival(*numbers[at : at + 3])


def consume(url: str, topics: list[str], count: int, numbers: array[int]) -> None:
    """Read `count` messages, or until no more come."""
    last: dict[bytes, bytes] = {topic.encode(): b"0-0" for topic in topics}
    # A read that blocks is bounded by its own patience, not by the store's.
    with closing(Store(url, timeout=2 * PATIENCE_MS / 1000)) as store:
        while len(numbers) < 3 * count:
            words = ("XREAD", "COUNT", 1000, "BLOCK", PATIENCE_MS, "STREAMS")
            where = (*last.keys(), *last.values())
            reply: Any = store.run(plain(*words, *where, key=topics[0], read=lambda reply: reply))
            arrived = time.time_ns() // 1000
            if reply is None and numbers:
                break
            for topic, entries in reply or ():
                for id, fields in entries:
                    due = dict(zip(fields[::2], fields[1::2], strict=True))[b"due"]
                    numbers.extend((int(due), arrived, int(id.split(b"-")[0])))
                last[topic] = entries[-1][0]


def main() -> None:
    """Consume, then write everything at once."""
    url, topics, count, path = sys.argv[1:]
    numbers: array[int] = array("q")
    Path(path).touch()
    try:
        consume(url, topics.split(","), int(count), numbers)
    finally:
        Path(path).write_bytes(numbers.tobytes())


if __name__ == "__main__":
    main()
