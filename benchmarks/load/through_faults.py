"""Steady traffic through faults: messages are scheduled at an even rate whatever happens, and followed to the stream.

A producer and a consumer, processes of their own (`steady_producer`, `steady_consumer`), write down what they see, each
into a file that is read while they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import now, wait_for
from benchmarks.load.messages import QUEUES
from benchmarks.results import percentile
from benchmarks.running.processes import Process, python
from delayq.store.keys import Layout

__all__ = ["GENERAL", "Arrived", "Plan", "Steady", "again", "late", "twice"]

#: The general path into a stream of the same Redis: there a fault can forward a message twice.
GENERAL: Final = '[{"name":"steady","match":"*","path":"general"}]'
#: ms between a message's planned time and its due.
DELAYS: Final = (500, 3000)
_LAYOUT: Final = Layout(QUEUES)


class Plan(msgspec.Struct, frozen=True):
    """What is scheduled: messages a second of one topic from a time on (Unix ms); where what was seen is written."""

    url: str
    topic: str
    rate: int
    start: float
    file: str
    min_replicas: int = 0
    routes: str = GENERAL

    def arguments(self) -> list[str]:
        """As the processes read it."""
        return [msgspec.json.encode(self).decode()]


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A message at the consumer: its due in Unix ms, its arrival in Unix ms with a fraction."""

    id: str
    due: int
    at: float

    @property
    def queue(self) -> int:
        """The queue that it was in."""
        return _LAYOUT.queue_of(self.id)


class _Lines:
    """The lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[list[str]]:
        """The words of the lines that came since the last look."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [line.split(" ") for line in whole.decode().splitlines()]


class Steady:
    """The traffic, while it is entered. `accepted` is id → due, `errors` when calls failed (Unix ms), `arrived` all."""

    def __init__(
        self, url: str, folder: Path, rate: int, *, min_replicas: int = 0, topic: str = "order.cancel"
    ) -> None:
        self.accepted: dict[str, int] = {}
        self.errors: list[float] = []
        self.arrived: list[Arrived] = []
        self.rate = rate
        self._plans = [
            Plan(url, topic, rate, now() + 1500, str(folder / name), min_replicas) for name in ("accepted", "arrived")
        ]
        self._lines = [_Lines(Path(plan.file)) for plan in self._plans]
        self._stack = ExitStack()
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        for name, plan in zip(("steady_producer", "steady_consumer"), self._plans, strict=True):
            process = self._stack.enter_context(python("-m", f"benchmarks.load.{name}", *plan.arguments()))
            self._processes.append(process)
        wait_for("the first message", lambda: bool(self.look().arrived), seconds=30)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def look(self) -> Self:
        """Read what was seen since the last look."""
        for process in self._processes:
            process.check()
        accepted, arrived = (lines.new() for lines in self._lines)
        for words in accepted:
            if words[0] == "error":
                self.errors.append(float(words[1]))
            else:
                self.accepted[words[0]] = int(words[1])
        self.arrived += [Arrived(id, int(due), float(at)) for id, due, at in arrived]
        return self

    def wait_again(self, since: float, seconds: float, queues: Iterable[int] = range(QUEUES)) -> None:
        """Wait until messages of all these queues that were due after that time (Unix ms) have arrived."""
        wanted = set(queues)

        def there() -> bool:
            return wanted <= again(self.look().arrived, since).keys()

        wait_for("deliveries after a fault", there, seconds=seconds, pause=0.2)

    def finish(self) -> int:
        """Schedule no more, and wait until all that was accepted has arrived; how many have not within 30 s: are lost."""
        producer = self._processes.pop(0)
        producer.stop()
        try:
            wait_for("all messages", lambda: not self._missing(), seconds=30, pause=0.2)
        except BenchmarkError:
            return len(self._missing())
        return 0

    def _missing(self) -> set[str]:
        self.look()
        return self.accepted.keys() - {one.id for one in self.arrived}


def again(arrived: Sequence[Arrived], since: float) -> dict[int, float]:
    """When each queue delivered first what was due after a time: the ms since then."""
    first: dict[int, float] = {}
    for one in arrived:
        if one.due >= since:
            first[one.queue] = min(first.get(one.queue, one.at), one.at)
    return {queue: at - since for queue, at in first.items()}


def between(arrived: Sequence[Arrived], begin: float, end: float) -> list[Arrived]:
    """What was due in a time."""
    found = [one for one in arrived if begin <= one.due < end]
    if not found:
        raise BenchmarkError("no message fell due in the time that counts")
    return found


def late(arrived: Sequence[Arrived], begin: float, end: float, percent: float = 99) -> float:
    """How late (ms) that percentile of the messages due in a time was; of one that came twice the first counts."""
    first: dict[str, float] = {}
    for one in between(arrived, begin, end):
        first[one.id] = min(first.get(one.id, one.at - one.due), one.at - one.due)
    return percentile(sorted(first.values()), percent)


def twice(arrived: Sequence[Arrived], begin: float, end: float) -> int:
    """How many deliveries of what was due in a time were repeated ones."""
    found = between(arrived, begin, end)
    return len(found) - len({one.id for one in found})
