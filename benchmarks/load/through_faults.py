"""Steady traffic through faults: messages are scheduled at an even rate whatever happens, and followed to the stream.

`Steady` runs two processes that end on SIGTERM. Each writes a file that is read while they run.

- `through_faults produce PLAN` schedules messages and repeats failed calls with the same ids. It writes a line `id due` for
  each accepted message and a line `error time` for each failed call. After SIGTERM it only repeats failed calls for a moment.
- `through_faults consume PLAN` reads the topic's stream and writes a line `id due arrival` for each entry (Unix ms).
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now, wait_for
from benchmarks.load.backlog import sleep_until
from benchmarks.load.messages import QUEUES, make
from benchmarks.load.traffic import DELAYS, TICK
from benchmarks.results import percentile
from benchmarks.running.processes import Process, python
from delayq import Client, Message, Scheduled, Settings
from delayq.base.errors import StoreError
from delayq.store.commands import plain
from delayq.store.connect.store import Store
from delayq.store.keys import Layout

#: The general path into a stream of the same Redis, where a fault can deliver a message twice.
GENERAL: Final = '[{"name":"steady","match":"*","path":"general"}]'
#: Messages of one call at most, and ms after SIGTERM in which the producer repeats failed calls.
MOST: Final = 500
AFTER_MS: Final = 5_000
#: ms that the consumer blocks in a read, and s that it waits after a failed one.
BLOCK_MS: Final = 200
AGAIN_SECONDS: Final = 0.005
_LAYOUT: Final = Layout(QUEUES)


class Plan(msgspec.Struct, frozen=True):
    """The messages to schedule: messages a second of one topic from a start time on (Unix ms); `file` is for the results."""

    url: str
    topic: str
    rate: int
    start: float
    file: str
    min_replicas: int = 0
    routes: str = GENERAL

    def arguments(self) -> list[str]:
        """The plan as an argument of the processes."""
        return [msgspec.json.encode(self).decode()]


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A message at the consumer: its due time in Unix ms, its arrival in Unix ms with a fraction."""

    id: str
    due: int
    at: float

    @property
    def queue(self) -> int:
        """The queue of the message."""
        return _LAYOUT.queue_of(self.id)


class _Lines:
    """The lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[list[str]]:
        """The words of the lines since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [line.split(" ") for line in whole.decode().splitlines()]


class Steady:
    """The traffic inside `with`: `accepted` maps ids to due times, `errors` has the times of failed calls (Unix ms)."""

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
        for what, plan in zip(("produce", "consume"), self._plans, strict=True):
            words = ("-m", "benchmarks.load.through_faults", what, *plan.arguments())
            process = self._stack.enter_context(python(*words))
            self._processes.append(process)
        wait_for("the first message", lambda: bool(self.look().arrived), seconds=30)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def look(self) -> Self:
        """Read the new lines of both processes."""
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
        """Wait until each of these queues has delivered a message that was due after that time (Unix ms)."""
        wanted = set(queues)

        def there() -> bool:
            return wanted <= again(self.look().arrived, since).keys()

        wait_for("deliveries after a fault", there, seconds=seconds, pause=0.2)

    def finish(self) -> int:
        """Stop the producer and wait up to 30 s for all accepted messages; return the number of lost ones."""
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
    """For each queue, the ms from a time until the first arrival of a message that was due after it."""
    first: dict[int, float] = {}
    for one in arrived:
        if one.due >= since:
            first[one.queue] = min(first.get(one.queue, one.at), one.at)
    return {queue: at - since for queue, at in first.items()}


def between(arrived: Sequence[Arrived], begin: float, end: float) -> list[Arrived]:
    """The arrivals of messages that were due in this time."""
    found = [one for one in arrived if begin <= one.due < end]
    if not found:
        raise BenchmarkError("no message was due in the measured time")
    return found


def late(arrived: Sequence[Arrived], begin: float, end: float, percent: float = 99) -> float:
    """A percentile of the lateness (ms) of the messages due in this time; only the first arrival of each counts."""
    first: dict[str, float] = {}
    for one in between(arrived, begin, end):
        first[one.id] = min(first.get(one.id, one.at - one.due), one.at - one.due)
    return percentile(sorted(first.values()), percent)


def twice(arrived: Sequence[Arrived], begin: float, end: float) -> int:
    """The number of repeated deliveries of messages due in this time."""
    found = between(arrived, begin, end)
    return len(found) - len({one.id for one in found})


class _Producer:
    """Carries out a plan."""

    def __init__(self, plan: Plan, client: Client, out: IO[str]) -> None:
        self._plan = plan
        self._client = client
        self._out = out
        self._made = 0
        self._again: list[Message] = []

    def run(self, stopping: list[int]) -> None:
        """Schedule until SIGTERM."""
        moment = self._plan.start
        while not stopping:
            sleep_until(moment)
            wanted = int(self._plan.rate * (now() - self._plan.start) / 1000) - self._made
            self.send(self.new(min(wanted, MOST)))
            moment = max(moment + TICK, now() - TICK)  # after a fault, larger calls catch up
        end = now() + AFTER_MS
        while self._again and now() < end:
            self.send([])

    def new(self, count: int) -> list[Message]:
        """Create messages whose due times follow from their planned times, however late this call is."""
        found = []
        for message in make(max(0, count), lambda _: 0, seed=self._made, topics=(self._plan.topic,)):
            planned = self._plan.start + 1000 * self._made / self._plan.rate
            due = int(planned) + random.randint(*DELAYS)
            found.append(msgspec.structs.replace(message, id=f"steady-{self._made}", expect_date=due))
            self._made += 1
        return found

    def send(self, new: list[Message]) -> None:
        """Schedule them, and the messages of failed calls."""
        messages = self._again[:MOST] + new
        if not messages:
            return
        failed = []
        for message, outcome in zip(messages, self._client.schedule_many(messages), strict=True):
            if isinstance(outcome, Scheduled):
                self._out.write(f"{message.id} {message.expect_date}\n")
            else:
                failed.append(message)
        if failed:
            self._out.write(f"error {now():.0f}\n")
        self._again = failed + self._again[MOST:]
        self._out.flush()


def _follow(store: Store, topic: str, out: IO[str], stopping: list[int]) -> None:
    """Read until SIGTERM."""
    last = b"0-0"
    while not stopping:
        words = ("XREAD", "COUNT", 1000, "BLOCK", BLOCK_MS, "STREAMS", topic, last)
        try:
            reply: Any = store.run(plain(*words, key=topic, read=lambda reply: reply))
        except StoreError:
            time.sleep(AGAIN_SECONDS)
            continue
        at = now()
        for _, entries in reply or ():
            for _, fields in entries:
                entry = dict(zip(fields[::2], fields[1::2], strict=True))
                out.write(f"{entry[b'id'].decode()} {int(entry[b'due'])} {at:.3f}\n")
            last = entries[-1][0]
        out.flush()


def _produce(plan: Plan, stopping: list[int]) -> None:
    settings = Settings(redis_url=plan.url, min_replicas=plan.min_replicas, routes=plan.routes)
    with Client(settings=settings) as client, Path(plan.file).open("w") as out:
        client.context()
        _Producer(plan, client, out).run(stopping)


def _consume(plan: Plan, stopping: list[int]) -> None:
    with closing(Store(plan.url)) as store, Path(plan.file).open("w") as out:
        _follow(store, plan.topic, out, stopping)


def main() -> None:
    """Carry out the plan of the second argument until SIGTERM."""
    action = {"produce": _produce, "consume": _consume}[sys.argv[1]]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    action(msgspec.json.decode(sys.argv[2], type=Plan), stopping)


if __name__ == "__main__":
    main()
