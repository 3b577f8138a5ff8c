"""The history of a run, on disk: a folder of JSON lines, written as things happen and read again by the checker.

`traffic.jsonl`, in the order of writing; `at` is Unix ms, a message is its number `n`:

    {"at", "what": "schedule", "of": [[n, 1 if by the general path else 0, the earliest due it can have], …]}
    {"at", "what": "scheduled", "of": [[n, due or null, queue], …]}      accepted, as the API answered
    {"at", "what": "move", "of": [[n, due]]}                             before the request is sent
    {"at", "what": "moved" | "unmoved" | "doubt", "of": [[n, due]]}      answered 200; 404 or 409; not answered
    {"at", "what": "ended", "of": [[n, result], …]}                      the answer to a cancel, or 'unknown'
    {"at", "what": "odd", "of": [[n, what was answered], …]}             an answer that must not be; n may be -1

`forwards.jsonl`: {"at", "stream", "of": [[when it was appended (Unix ms), id, due, attempt], …]}
`faults.jsonl`: {"at", "fault", "victim", "seconds", "done": true, false (its victims were broken already) or "healed"}
`run.json`: the options of the run, and how it ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

import msgspec

TRAFFIC, FORWARDS, FAULTS, RUN = "traffic.jsonl", "forwards.jsonl", "faults.jsonl", "run.json"


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of the history."""
    with path.open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line)


class History:
    """Writes it; from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._files: dict[str, IO[bytes]] = {name: (folder / name).open("wb") for name in (TRAFFIC, FORWARDS, FAULTS)}

    def _write(self, name: str, line: dict[str, Any]) -> None:
        text = msgspec.json.encode(line) + b"\n"
        with self._lock:
            self._files[name].write(text)

    def say(self, what: str, of: Sequence[Sequence[Any]]) -> None:
        """Something about messages."""
        self._write(TRAFFIC, {"at": now(), "what": what, "of": of})

    def forwarded(self, stream: str, of: Sequence[Sequence[Any]]) -> None:
        """Entries of a stream."""
        self._write(FORWARDS, {"at": now(), "stream": stream, "of": of})

    def fault(self, kind: str, victim: str, **more: Any) -> None:
        """A fault, or that it was healed."""
        self._write(FAULTS, {"at": now(), "fault": kind, "victim": victim, **more})

    def run(self, **facts: Any) -> None:
        """The options of the run, and how it ended."""
        (self.folder / RUN).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")

    def close(self) -> None:
        """Everything is on disk."""
        with self._lock:
            for file in self._files.values():
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
