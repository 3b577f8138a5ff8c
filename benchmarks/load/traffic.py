"""Traffic in an open loop, and how late its messages arrive.

`Traffic` runs two processes. The producer (`traffic produce URL PLAN`) schedules messages at a steady rate, whatever becomes
of them. The due time of a message is its planned time plus a random delay, so a late producer makes no figure look better.
The consumer (`traffic consume URL TOPICS COUNT FILE`) reads the topics' streams. For each message it writes three numbers: its
due time (Unix ms), its arrival (Unix µs) and the time in its entry's id (Unix ms). It creates the file when it begins to read.
"""

from __future__ import annotations

import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now, wait_for
from benchmarks.load.backlog import schedule_all, sleep_until
from benchmarks.load.messages import make
from benchmarks.results import percentile
from benchmarks.running.processes import Handshake, Process, python
from delayq import Client, Message
from delayq.store.commands import plain
from delayq.store.connect.store import Store

#: The usual delays (ms), and s of a plan that do not count.
DELAYS: Final = (500, 3000)
WARM_UP: Final = 4.0
#: ms between two calls of the producer.
TICK: Final = 5
#: s in which a producer and a consumer start, and ms after which they begin then.
STARTING: Final = 120.0
SOON: Final = 100
#: ms that the consumer waits for the next message.
PATIENCE_MS: Final = 5_000
PERCENTILES: Final = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
#: The arguments of Python that run the producer.
PRODUCE: Final = ("-m", "benchmarks.load.traffic", "produce")


class Plan(msgspec.Struct, frozen=True):
    """The traffic: messages a second from a start time on (Unix ms), with a smallest and a largest delay (ms).

    Without a start time (0) `Traffic` begins when all its processes are ready.
    """

    url: str
    topics: tuple[str, ...]
    rate: int
    start: float
    seconds: float
    delays: tuple[int, int]

    @property
    def count(self) -> int:
        """The number of messages."""
        return int(self.rate * self.seconds)


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One message: its due time (Unix ms), its arrival at the consumer (µs), and the time of its stream entry (ms)."""

    due: int
    arrived: int
    entry: int

    @property
    def late(self) -> float:
        """The ms between due time and arrival."""
        return (self.arrived - 1000 * self.due) / 1000

    @property
    def entry_late(self) -> int:
        """The ms between due time and entry, by the clock of Redis, without fractions."""
        return self.entry - self.due


class Lateness(msgspec.Struct, frozen=True):
    """Percentiles of the lateness in ms, at the consumer and by the id of the stream entry; the number of early messages."""

    consumer: dict[str, float]
    entry: dict[str, float]
    early: int
    count: int


def lateness(some: Sequence[Arrival]) -> Lateness:
    """Compute the percentiles of these arrivals."""
    if not some:
        raise BenchmarkError("no message was due in the measured time")
    late = sorted(one.late for one in some)
    entry_late = sorted(one.entry_late for one in some)
    return Lateness(
        consumer={name: round(percentile(late, percent), 3) for name, percent in PERCENTILES.items()},
        entry={name: percentile(entry_late, percent) for name, percent in PERCENTILES.items()},
        early=sum(one.late < 0 or one.entry_late < 0 for one in some),
        count=len(some),
    )


class Traffic:
    """A producer with its plan, and a consumer of the same topics. `reader` replaces the consumer of Redis Streams."""

    def __init__(self, plan: Plan, folder: Path, reader: Sequence[str] = ()) -> None:
        self.plan = plan
        name = plan.topics[0]
        self._file = folder / f"arrivals of {name}"
        self._handshake = Handshake(folder / f"plan of {name}")
        self._created = None if reader else self._file
        words = reader or ("-m", "benchmarks.load.traffic", "consume", plan.url, ",".join(plan.topics))
        self._consumer = python(*words, str(plan.count), str(self._file))
        self._producer = python(*PRODUCE, plan.url, self._handshake.argument)
        self._running: tuple[Process, Process] | None = None

    def __enter__(self) -> Traffic:
        with ExitStack() as stack:
            self._running = (stack.enter_context(self._consumer), stack.enter_context(self._producer))
            wait_for("producer and consumer", self._ready, seconds=STARTING)
            if not self.plan.start:
                self.plan = msgspec.structs.replace(self.plan, start=now() + SOON)
            self._handshake.send(msgspec.json.encode(self.plan))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _ready(self) -> bool:
        for process in self._running or ():
            process.check()
        return self._handshake.ready() and (self._created is None or self._created.exists())

    def wait(self) -> tuple[list[Arrival], float]:
        """Wait until all messages have arrived; return the arrivals, and by how many ms the producer was late at most."""
        assert self._running is not None
        consumer, producer = self._running
        patience = max(0.0, self.plan.start / 1000 - now() / 1000) + self.plan.seconds + 20
        producer.wait(patience)
        consumer.wait(patience)
        arrived = list(arrivals(self._file))
        if len(arrived) != self.plan.count:
            raise BenchmarkError(f"{len(arrived)} of {self.plan.count} messages arrived")
        return arrived, float(producer.output())


def arrivals(path: Path) -> Iterator[Arrival]:
    """Read the file of a consumer."""
    numbers = array("q", path.read_bytes())
    for at in range(0, len(numbers), 3):
        yield Arrival(*numbers[at : at + 3])


def _batches(plan: Plan) -> Iterator[tuple[float, list[Message]]]:
    """Yield the messages of each call, and when to make it."""
    least, most = plan.delays
    done = 0
    step = 0
    while done < plan.count:
        step += 1
        moment = plan.start + step * TICK
        wanted = min(plan.count, int(plan.rate * step * TICK / 1000)) - done
        if wanted:

            def due(chooser: random.Random, moment: float = moment) -> int:
                return int(moment) + chooser.randint(least, most)

            yield moment, list(make(wanted, due, seed=step, topics=plan.topics))
            done += wanted


def _produce(url: str, path: str) -> None:
    """Carry out the plan of a handshake; print by how many ms a call was late at most."""
    late = 0.0
    with Client(url) as client:
        client.context()
        plan = msgspec.json.decode(Handshake(Path(path)).wait(), type=Plan)
        for moment, messages in _batches(plan):
            sleep_until(moment)
            late = max(late, now() - moment)
            schedule_all(client, messages)
    print(late)


def _consume(url: str, topics: str, count: str, path: str) -> None:
    """Read all messages, then write everything at once."""
    numbers: array[int] = array("q")
    Path(path).touch()
    try:
        _read(url, topics.split(","), int(count), numbers)
    finally:
        Path(path).write_bytes(numbers.tobytes())


def _read(url: str, topics: list[str], count: int, numbers: array[int]) -> None:
    """Read `count` messages, or until no more arrive."""
    last: dict[bytes, bytes] = {topic.encode(): b"0-0" for topic in topics}
    # A blocking read waits for PATIENCE_MS, so the store's time-out has to be longer.
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


ACTIONS: Final[dict[str, Callable[..., None]]] = {"produce": _produce, "consume": _consume}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]](*sys.argv[2:])
