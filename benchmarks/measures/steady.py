"""Steady deliveries, messages that come alone: the cost of a message at 100, 1,000 and 5,000 a second.

Messages that were scheduled before become due at random moments, and nobody reads them. The cost is compared with that of a
bare client. It sends one packet over a plain socket for all messages that are due in the same ms. The packet has HGET, XADD,
ZREM and HDEL for each message. Both are measured in turn. A cost is the CPU time of both sides: of the worker or the bare
client, and of the server. The general path into a null target has no comparison. With *slack* the route allows messages to
go out that many ms late.

A queue does more than the bare client. The bare client knows all messages in advance, so it reads none and searches for
none. It would deliver a message that was cancelled or moved, and a second client would send everything twice. A crash
between two commands leaves half of the work. It has no owner that may be deposed, no watermark that makes a cancel certain,
and no second clock. It has no unknown or full topics, no attempts, no index of keys, no counters, and no wake-ups. It does
not repeat a call whose reply was lost. So the goal of 2.5 times the bare client compares with the cost of plain commands.

The brackets contain for each message:

- the CPU of each process in µs
- the sleeps of the threads of the worker, or of the client
- the EVALSHA calls and their time in the server
- all commands, including those of scripts

The lateness of deliveries comes from the ids of the entries.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError, TooLate
from benchmarks.harness import CpuMeter, Scale, in_turns, now, progress, switches, wait_for
from benchmarks.load import bare_client
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until
from benchmarks.load.messages import TOPICS, make, spread
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.results import Figure, Pair, paired, percentile, single
from benchmarks.running import limit
from benchmarks.running.processes import NULL, Handshake, Process, connect, python, server, worker
from delayq import Client, Message

RATES: Final = (100, 1_000, 5_000)
NULL_RATE: Final = 1_000
TIMES_BARE: Final = {1_000: 2.5}
STREAM_US: Final = {1_000: 300, 5_000: 115}
NULL_US: Final = 400
SLACK_RATE: Final = 1_000
SLACK: Final = 50
SLACK_US: Final = 100
BARE: Final = "bare client"
#: ms of a phase that do not count, and ms between two phases.
BEFORE: Final = 500
APART: Final = 200
#: Messages of one call, which go into one queue: every queue gets messages of every phase.
TOGETHER: Final = 100
#: Messages a second that are scheduled this way, and with the commands of the limit.
PACE: Final = 25_000
BARE_PACE: Final = 25_000
UNIT: Final = "µs a message"


class Phase(msgspec.Struct, frozen=True):
    """A time (Unix ms) with `rate` messages a second; those due from `first` to `end` count."""

    rate: int
    start: int
    end: int

    @property
    def first(self) -> int:
        """The first ms that counts."""
        return self.start + BEFORE

    def counted(self, dues: Sequence[int]) -> int:
        """The number of these due times that count."""
        return sum(self.first <= due < self.end for due in dues)


class Cost(msgspec.Struct, frozen=True):
    """The cost of a message: CPU µs by process, and other figures."""

    cpu: dict[str, float]
    more: dict[str, float]
    late: tuple[float, float, int] = (0, 0, 0)  # p50 and p99 in ms, the number of early messages

    @property
    def both(self) -> float:
        """The CPU µs of both sides."""
        return sum(self.cpu.values())

    @property
    def parts(self) -> dict[str, float]:
        """The parts of a figure."""
        return self.cpu | self.more


class Meter:
    """Measures the CPU of a process and of the server, and counts the server's commands."""

    def __init__(self, url: str, server: int | None, **process: int) -> None:
        (self._pid,) = process.values()
        self._connection: Any = connect(url)
        self._cpu = CpuMeter(**process, Redis=server)
        self._before = self._counts()

    def _counts(self) -> dict[str, int]:
        found = self._connection.info("commandstats")
        scripts = found.get("cmdstat_evalsha", {"calls": 0, "usec": 0})
        commands = sum(one["calls"] for name, one in found.items() if name != "cmdstat_info")
        return {"EVALSHA": scripts["calls"], "EVALSHA µs": scripts["usec"], "commands": commands}

    def begin(self) -> None:
        """Start the measurement."""
        self._before = self._counts()
        self._slept = switches(self._pid)
        self._cpu.begin()

    def end(self, count: int) -> Cost:
        """End it; `count` messages were delivered."""
        self._cpu.end(count)
        slept = switches(self._pid) - self._slept
        counts = {name: (value - self._before[name]) / count for name, value in self._counts().items()}
        self._connection.close()
        return Cost(self._cpu.each(), {"sleeps": slept / count} | counts)


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure deliveries in turn with the bare client."""
    seconds = 2 if scale.quick else 5
    measures = {
        BARE: partial(_bare, seconds),
        "into a stream": partial(_delivered, seconds, RATES),
        "into a null target": partial(_delivered, seconds, (NULL_RATE,), null=True),
        "with slack": partial(_delivered, seconds, (SLACK_RATE,), slack=SLACK),
    }
    rounds = in_turns("steady", scale.runs, measures, swap=True)
    figures = [figure for rate in RATES for figure in _of_streams(rate, rounds)]
    null = [found["into a null target"][NULL_RATE] for found in rounds]
    name = f"delivery through the general path into a null target at {NULL_RATE:,}/s"
    figures.append(single(name, UNIT, [one.both for one in null], goal=NULL_US, parts=[one.parts for one in null]))
    slack = [found["with slack"][SLACK_RATE] for found in rounds]
    name = f"delivery into a stream at {SLACK_RATE:,}/s, with slack {SLACK} ms"
    figures.append(single(name, UNIT, [one.both for one in slack], goal=SLACK_US, parts=[one.parts for one in slack]))
    figures += _lateness(name, [one.late for one in slack])
    return figures, {"rounds": msgspec.to_builtins(rounds)}


def _of_streams(rate: int, rounds: Sequence[dict[str, dict[int, Cost]]]) -> Iterator[Figure]:
    ours = [found["into a stream"][rate] for found in rounds]
    name = f"delivery into a stream at {rate:,}/s"
    yield single(name, UNIT, [one.both for one in ours], goal=STREAM_US.get(rate), parts=[one.parts for one in ours])
    beside = [found[BARE][rate] for found in rounds]
    yield paired(
        f"{name}, beside the {BARE}",
        UNIT,
        [Pair(one.both, its.both) for one, its in zip(ours, beside, strict=True)],
        goal=TIMES_BARE.get(rate),
        at_most=True,
        parts=[{f"its {part}": value for part, value in one.cpu.items()} for one in beside],
    )
    yield from _lateness(name, [one.late for one in ours])


def _lateness(name: str, late: Sequence[tuple[float, float, int]]) -> Iterator[Figure]:
    for place, what in enumerate(("p50", "p99")):
        yield single(f"{name}, lateness {what}", "ms", [one[place] for one in late])
    yield single(f"{name}, early", "messages", [one[2] for one in late], goal=0)


def plan(rates: Sequence[int], seconds: int, pace: int) -> tuple[list[Phase], list[Message]]:
    """Create the phases and their messages, in random order."""
    each = BEFORE + 1000 * seconds
    count = sum(rate * each // 1000 for rate in rates)
    begin = in_time(count, pace=pace)
    starts = (begin + place * (each + APART) for place in range(len(rates)))
    found = [Phase(rate, start, start + each) for rate, start in zip(rates, starts, strict=True)]
    messages = [
        message
        for phase in found
        for message in make(phase.rate * each // 1000, spread(phase.start, each), seed=phase.rate)
    ]
    random.Random(1).shuffle(messages)
    return found, messages


def _costs(
    some: Sequence[Phase], messages: Sequence[Message], url: str, server: int | None, name: str, process: Process
) -> dict[int, Cost]:
    """Measure each phase while it runs."""
    dues = [message.expect_date or 0 for message in messages]
    found = {}
    for phase in some:
        meter = Meter(url, server, **{name: process.pid})
        sleep_until(phase.first)
        meter.begin()
        sleep_until(phase.end + 20)
        found[phase.rate] = meter.end(phase.counted(dues))
        progress(f"steady: {phase.rate:,}/s, {name}: {found[phase.rate].parts}")
    return found


def _bare(seconds: int) -> dict[int, Cost]:
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name, server() as running:
        folder = Path(name)
        handshake = Handshake(folder / "packets")
        words = ("-m", "benchmarks.load.bare_client", str(running.port), handshake.argument)
        with python(*words) as process:
            wait_for("ready bare client", handshake.ready, seconds=30)
            some, messages = plan(RATES, seconds, BARE_PACE)
            placed = limit.write_schedule(folder / "load", messages, run=TOGETHER)
            limit.feed(running.port, folder / "load", 2 * len(messages))
            handshake.send(bare_client.packets(messages, placed))
            if now() > some[0].start:
                raise TooLate("feeding took longer than expected; is the machine busy?")
            found = _costs(some, messages, running.url, running.pid, "client", process)
            process.wait(30)
            with closing(Watch(running.url)) as watch:
                _all_there(watch, len(messages))
    return found


def _delivered(seconds: int, rates: Sequence[int], *, null: bool = False, slack: int = 0) -> dict[int, Cost]:
    module, routes = "workers", f'[{{"name":"streams","slack":{slack}}}]'
    if null:
        module, routes = NULL, NULL_ROUTES
    with (
        server() as running,
        worker(running.url, module, routes) as process,
        Client(running.url) as client,
        closing(Watch(running.url)) as watch,
    ):
        some, messages = plan(rates, seconds, PACE)
        for first in range(0, len(messages), TOGETHER):
            schedule_ahead(client, messages[first : first + TOGETHER], some[0].start)
        found = _costs(some, messages, running.url, running.pid, "worker", process)
        process.check()
        wait_for("delivery of the last message", lambda: watch.pending() == 0, seconds=30)
        if null:
            return found
        _all_there(watch, len(messages))
        entries = _entries(running.url)
    return {phase.rate: msgspec.structs.replace(found[phase.rate], late=_late(phase, entries)) for phase in some}


def _all_there(watch: Watch, count: int) -> None:
    if (there := watch.appended()) != count:
        raise BenchmarkError(f"the streams have {there} messages instead of {count}")


def _entries(url: str) -> list[tuple[int, int]]:
    """The due time and the time of each entry."""
    with closing(connect(url)) as connection:
        return [
            (int(fields[b"due"]), int(id.split(b"-")[0])) for topic in TOPICS for id, fields in connection.xrange(topic)
        ]


def _late(phase: Phase, entries: Sequence[tuple[int, int]]) -> tuple[float, float, int]:
    late = sorted(at - due for due, at in entries if phase.first <= due < phase.end)
    return percentile(late, 50), percentile(late, 99), sum(one < 0 for one in late)
