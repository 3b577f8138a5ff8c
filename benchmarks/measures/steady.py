"""Steady traffic, messages that come alone: the cost of a message at 100, 1,000 and 5,000 a second.

Delivery: messages that were scheduled before become due at random moments, and nobody reads them. The cost is compared with
two versions of a bare client. It sends one packet over a plain socket for all messages that are due in the same ms:

- *Bare client*: HGET, XADD, ZREM and HDEL for each message as plain commands.
- *Minimal script*: an EVALSHA for each queue with due messages finds, appends and removes them. It uses TIME, ZRANGE, HMGET,
  XADD, ZREM and HDEL alone.

All are measured in turn. A cost is the
CPU time of both sides: of the worker or the bare client, and of the server. The general path into a null target has no
comparison. All traffic: producer, worker and consumer are processes of their own, as in `lateness`, with delays of 200 to
1,000 ms. With *slack* the route allows messages to go out that many ms late.

A queue does more than both comparisons. The bare client knows all messages in advance, so it reads none and searches for
none. It would deliver a message that was cancelled or moved, and a second client would send everything twice. A crash
between two commands leaves half of the work. The script is atomic and finds due messages, but the client knows in which ms
to call it, and for which queue. Both have no owner that may be deposed, no watermark that makes a cancel certain, and no
second clock. They have no unknown or full topics, no attempts, no index of keys, no counters, and no wake-ups. They do not
repeat a call whose reply was lost. So the goal of 2.5 times the bare client compares with the cost of plain commands. The
minimal script is the smallest cost of an atomic move.

The brackets contain for each message:

- the CPU of each process in µs
- the sleeps of the threads of the worker, or of the client
- the EVALSHA calls and their time in the server
- all commands, including those of scripts

The lateness of deliveries comes from the ids of the entries, and the lateness of all traffic from the consumer.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from benchmarks.load.traffic import Lateness, Plan, Traffic, lateness
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.measures.lateness import GOALS
from benchmarks.results import NOTES, Figure, Pair, paired, percentile, single
from benchmarks.running import limit
from benchmarks.running.limit import Placed
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
DELAYS: Final = (200, 1_000)
BARE: Final = "bare client"
MINIMAL: Final = "minimal script"
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
    """Measure deliveries in turn with the bare client, then all traffic."""
    seconds = 2 if scale.quick else 5
    measures = {
        BARE: partial(_bare, seconds, bare_client.plain),
        MINIMAL: partial(_bare, seconds, bare_client.by_script),
        "into a stream": partial(_delivered, seconds, RATES),
        "into a null target": partial(_delivered, seconds, (NULL_RATE,), null=True),
        "with slack": partial(_delivered, seconds, (SLACK_RATE,), slack=SLACK),
    }
    rounds = in_turns("steady", scale.runs, measures, swap=True)
    traffic = [{rate: _traffic(rate, seconds, number) for rate in RATES} for number in range(1, scale.runs + 1)]
    figures = [figure for rate in RATES for figure in _of_streams(rate, rounds)]
    null = [found["into a null target"][NULL_RATE] for found in rounds]
    name = f"delivery through the general path into a null target at {NULL_RATE:,}/s"
    figures.append(single(name, UNIT, [one.both for one in null], goal=NULL_US, parts=[one.parts for one in null]))
    slack = [found["with slack"][SLACK_RATE] for found in rounds]
    name = f"delivery into a stream at {SLACK_RATE:,}/s, with slack {SLACK} ms"
    figures.append(single(name, UNIT, [one.both for one in slack], goal=SLACK_US, parts=[one.parts for one in slack]))
    figures += _lateness(name, [one.late for one in slack], {})
    figures += [figure for rate in RATES for figure in _of_traffic(rate, [found[rate] for found in traffic])]
    details = {"rounds": msgspec.to_builtins(rounds), "all traffic": msgspec.to_builtins(traffic)}
    return figures, details | {NOTES: [reckoning(rounds, rate) for rate in TIMES_BARE]}


def reckoning(rounds: Sequence[dict[str, dict[int, Cost]]], rate: int) -> str:
    """A sentence that explains the difference between a delivery into a stream and the two comparisons."""
    sides = {
        who: [statistics.median(found[who][rate].cpu[side] for found in rounds) for side in (process, "Redis")]
        for who, process in ((BARE, "client"), (MINIMAL, "client"), ("into a stream", "worker"))
    }
    (bare, minimal, ours) = ([sum(one), *one] for one in sides.values())
    return (
        f"At {rate:,}/s a message costs the bare client and Redis {bare[1]:.0f} + {bare[2]:.0f} = {bare[0]:.0f} µs. The minimal "
        f"script costs {minimal[1]:.0f} + {minimal[2]:.0f} = {minimal[0]:.0f} µs, and worker and Redis {ours[1]:.0f} + "
        f"{ours[2]:.0f} = {ours[0]:.0f} µs. The difference to the bare client is {ours[0] - bare[0]:.0f} µs. The script takes "
        f"{minimal[0] - bare[0]:.0f} of them, and everything else {ours[1] - minimal[1]:.0f} in the worker and "
        f"{ours[2] - minimal[2]:.0f} in Redis."
    )


def _of_streams(rate: int, rounds: Sequence[dict[str, dict[int, Cost]]]) -> Iterator[Figure]:
    ours = [found["into a stream"][rate] for found in rounds]
    name = f"delivery into a stream at {rate:,}/s"
    yield single(name, UNIT, [one.both for one in ours], goal=STREAM_US.get(rate), parts=[one.parts for one in ours])
    for other, goal in ((BARE, TIMES_BARE.get(rate)), (MINIMAL, None)):
        beside = [found[other][rate] for found in rounds]
        yield paired(
            f"{name}, beside the {other}",
            UNIT,
            [Pair(one.both, its.both) for one, its in zip(ours, beside, strict=True)],
            goal=goal,
            at_most=True,
            parts=[{f"its {part}": value for part, value in one.cpu.items()} for one in beside],
        )
    yield from _lateness(name, [one.late for one in ours], {})


def _of_traffic(rate: int, runs: Sequence[tuple[Cost, Lateness]]) -> Iterator[Figure]:
    name = f"all traffic at {rate:,}/s"
    yield single(name, UNIT, [cost.both for cost, _ in runs], parts=[cost.parts for cost, _ in runs])
    late = [(found.consumer["p50"], found.consumer["p99"], found.early) for _, found in runs]
    yield from _lateness(name, late, GOALS.get(rate, {}))


def _lateness(name: str, late: Sequence[tuple[float, float, int]], goals: dict[str, float]) -> Iterator[Figure]:
    for place, what in enumerate(("p50", "p99")):
        yield single(f"{name}, lateness {what}", "ms", [one[place] for one in late], goal=goals.get(what))
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


def _bare(seconds: int, packets: Callable[[Sequence[Message], Sequence[Placed]], bytes]) -> dict[int, Cost]:
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name, server() as running:
        folder = Path(name)
        handshake = Handshake(folder / "packets")
        words = ("-m", "benchmarks.load.bare_client", str(running.port), handshake.argument)
        with python(*words) as process, closing(connect(running.url)) as connection:
            connection.script_load(bare_client.SCRIPT)
            wait_for("ready bare client", handshake.ready, seconds=30)
            some, messages = plan(RATES, seconds, BARE_PACE)
            placed = limit.write_schedule(folder / "load", messages, run=TOGETHER)
            limit.feed(running.port, folder / "load", 2 * len(messages))
            handshake.send(packets(messages, placed))
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


def _traffic(rate: int, seconds: int, number: int) -> tuple[Cost, Lateness]:
    progress(f"steady: all traffic at {rate:,}/s, run {number}")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url) as process,
    ):
        warm_up = DELAYS[1] + BEFORE
        planned = Plan(running.url, ("order.cancel",), rate, 0, seconds + warm_up / 1000, DELAYS)
        with Traffic(planned, Path(folder)) as traffic:
            start = int(traffic.plan.start)
            counted = Phase(rate, start + DELAYS[1], start + warm_up + 1000 * seconds)
            meter = Meter(running.url, running.pid, worker=process.pid)
            sleep_until(counted.first)
            meter.begin()
            sleep_until(counted.end)
            cost = meter.end(rate * seconds)
            arrived, producer_late = traffic.wait()
    if producer_late > DELAYS[0]:
        progress(f"steady: the producer was {producer_late:,.0f} ms late, so some messages were due at once")
    found = lateness([one for one in arrived if counted.first <= one.due < counted.end])
    progress(f"steady: {cost.parts}, {found.consumer}")
    return cost, found
