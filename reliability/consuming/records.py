"""The records of a run: a file of JSON lines for each consumer, written as things happen and read again by the checker.

Each line is `[at, what, id, lease, more]`; `at` is Unix ms. Redis runs on the same machine, so this is its clock, too.

    "answered"                      a receive was answered
    "leased", id, lease, until      the consumer holds the lease until then, counted from when it sent the call
    "extended", id, lease, until    the same for an extension
    "handled", id, lease, "moved"   it has handled the message, and sends its acknowledgement; "moved" on the group's own topic
    "moved", id, lease              it has handed the message back to the group's own topic, and sends its acknowledgement
    "returns", id, lease            it sends a hand-back
    "settled", id, lease, result    the answer to either
    "failed", "", "", error         a call without an answer; the consumer goes on
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

Line = tuple[int, str, str, str, Any]

_decoder = msgspec.json.Decoder(Line)


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


def read(path: Path) -> Iterator[Line]:
    """The lines of a consumer. A kill may have cut off the last one of a process."""
    for text in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield _decoder.decode(text)
        except msgspec.DecodeError:
            continue


class Records:
    """Writes each line at once, so that a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._file.write(b"\n")  # ends a line that a kill has cut off

    def write(self, what: str, id: str = "", lease: str = "", more: Any = None) -> None:
        """Write a line with the time of now."""
        self._file.write(msgspec.json.encode((now(), what, id, lease, more)) + b"\n")
