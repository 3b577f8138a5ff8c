"""Measures several sides at the same time, each in its own slots, and shows differences of one or two percent.

Each side has its own server and worker, and each second belongs to one side, in turns. So whatever slows the machine for a
while slows all sides. Runs of minutes in turns do not achieve that: they differ by a tenth and more although nothing has
changed. Servers and workers of one commit also differ by some percent for as long as they live, so each round starts new
ones.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import now, progress, wait_for
from benchmarks.load.side import PARKED, Plan, Slot
from benchmarks.results import ROOT, Figure, Pair, paired
from benchmarks.running.processes import Handshake, program
from delayq.domain.policies import Policy

#: For each slot, the cost of a message, and messages/s.
Measured = list[dict[str, float]]

SIDE: Final = ROOT / "benchmarks" / "load" / "side.py"
#: Messages a second that each side schedules at least, beside the others, and ms that it has besides.
PACE: Final = 5_000
SPARE: Final = 5_000
#: s in which all sides start their servers and workers.
UP_SECONDS: Final = 120.0
#: A backlog of two seconds into streams, and one through the general path into a null target.
BACKLOG: Final = Slot(20_000, 2_000, drains=True)
NULL_BACKLOG: Final = msgspec.structs.replace(BACKLOG, null=True)
#: The same with one business key for each message.
KEYED_BACKLOG: Final = msgspec.structs.replace(BACKLOG, keys=1)
KEYED_NULL_BACKLOG: Final = msgspec.structs.replace(NULL_BACKLOG, keys=1)


class Kind(msgspec.Struct, frozen=True):
    """A measurement: what a slot contains, and how many slots each side has in a round."""

    name: str
    slots: int
    slot: Slot


class Side(msgspec.Struct, frozen=True):
    """A side: a checkout and its Python, with policies (see `Plan`)."""

    python: str = sys.executable
    checkout: Path = ROOT
    policies: tuple[Policy, ...] = ()
    held: bool = False


def starts_of(kind: Kind, sides: int, begin: int) -> list[list[int]]:
    """The start times of the slots of each side; the last side of a turn is the first one of the next."""
    found: list[list[int]] = [[] for _ in range(sides)]
    for turn in range(kind.slots):
        for place in range(sides):
            side = place if turn % 2 == 0 else sides - 1 - place
            found[side].append(begin + (turn * sides + place) * kind.slot.length)
    return found


def in_slots(kind: Kind, sides: Mapping[str, Side], rounds: int) -> dict[str, list[Measured]]:
    """The results of each side in each round; every second round has the reverse order."""
    found: dict[str, list[Measured]] = {name: [] for name in sides}
    for number in range(1, rounds + 1):
        progress(f"{kind.name}, round {number} of {rounds}")
        names = list(sides)[:: 1 if number % 2 else -1]
        for name, measured in measure(kind, {name: sides[name] for name in names}).items():
            found[name].append(measured)
    return found


def measure(kind: Kind, sides: Mapping[str, Side]) -> dict[str, Measured]:
    """Measure one round."""
    messages = kind.slots * kind.slot.count
    found = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="delayq-bench-")))
        running, handshakes = {}, {name: Handshake(folder / f"{number}") for number, name in enumerate(sides)}
        for (name, side), starts in zip(sides.items(), starts_of(kind, len(sides), 0), strict=True):
            plan = Plan(starts, kind.slot, msgspec.to_builtins(side.policies), side.held)
            words = (side.python, "-P", str(SIDE), msgspec.json.encode(plan).decode(), handshakes[name].argument)
            environment = {"PYTHONPATH": str(side.checkout)}
            running[name] = stack.enter_context(program(words, environment, side.checkout))

        def up() -> bool:
            for process in running.values():
                process.check()
            return all(handshake.ready() for handshake in handshakes.values())

        wait_for("sides that have started", up, seconds=UP_SECONDS)
        begin = int(now()) + SPARE + 1_000 * messages // PACE
        if any(side.held for side in sides.values()):
            begin += 1_000 * messages // PARKED
        for handshake in handshakes.values():
            handshake.send(str(begin).encode())
        seconds = (begin - now()) / 1_000 + len(sides) * kind.slots * kind.slot.length / 1_000
        for name, process in running.items():
            process.wait(seconds + 60)
            found[name] = msgspec.json.decode(process.output().splitlines()[-1], type=Measured)
    return found


def costs(name: str, here: Sequence[Measured], there: Sequence[Measured], *, goal: float | None = None) -> Figure:
    """The CPU µs of worker and Redis a message on one side, beside those on another."""
    parts = [
        _spent(one) | {f"its {name}": value for name, value in _spent(its).items()} for one, its in _slots(here, there)
    ]
    return compared(name, "CPU µs a message", _cost, here, there, goal=goal, at_most=True, parts=parts)


def rates(name: str, here: Sequence[Measured], there: Sequence[Measured], *, goal: float | None = None) -> Figure:
    """The messages/s of backlogs on one side, beside those on another."""
    return compared(name, "messages/s", rate, here, there, goal=goal)


def rate(slot: dict[str, float]) -> float:
    """The messages/s of a complete backlog."""
    return slot["rate"]


def compared(
    name: str,
    unit: str,
    value: Callable[[dict[str, float]], float],
    here: Sequence[Measured],
    there: Sequence[Measured],
    *,
    its: Callable[[dict[str, float]], float] | None = None,
    goal: float | None = None,
    at_most: bool = False,
    parts: Sequence[dict[str, float]] = (),
) -> Figure:
    """Compare a value of one side with the same value of another side, or with `its`; the error shows how the rounds differ."""
    its = its or value
    rounds = [
        [Pair(value(one), its(other)) for one, other in zip(ours, theirs, strict=True)]
        for ours, theirs in zip(here, there, strict=True)
    ]
    ratios = [statistics.median(pair.ratio for pair in pairs) for pairs in rounds]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    pairs = [pair for one in rounds for pair in one]
    each = [{"error": error} | part for part in parts or [{}]]
    return paired(name, unit, pairs, goal=goal, at_most=at_most, parts=each)


def _slots(here: Sequence[Measured], there: Sequence[Measured]) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    for ours, theirs in zip(here, there, strict=True):
        yield from zip(ours, theirs, strict=True)


def _spent(slot: dict[str, float]) -> dict[str, float]:
    return {name: slot[name] for name in ("worker", "Redis")}


def _cost(slot: dict[str, float]) -> float:
    return sum(_spent(slot).values())
