"""What a message costs in this checkout beside another one, slot by slot: `changes`, which tells one or two percent.

Both have a server and a worker of their own, at the same time, and each second belongs to one of them, in turns: first one,
then the other, the other again, and so on. So whatever slows the machine for a while slows both, which runs of minutes in turns
do not see to: those differ by a tenth and more where nothing has changed. A backlog has two seconds. Servers and workers of the
same commit differ by some percent, too, for as long as they live; so in each round they are new ones.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.beside import python_of
from benchmarks.harness import now, progress
from benchmarks.load.side import Plan
from benchmarks.results import ROOT, Figure, Pair, paired
from benchmarks.running.processes import program

__all__ = ["KINDS", "Kind", "changes", "starts_of"]

#: Of each slot, what a message cost and how many went a second.
Slots = list[dict[str, float]]

#: What is asked of a change that is to cost nothing.
GOAL: Final = 1.02
SIDE: Final = ROOT / "benchmarks" / "load" / "side.py"
#: Messages a second that each of them schedules at least, beside the other, and ms in which both are up.
PACE: Final = 5_000
UP: Final = 10_000


class Kind(msgspec.Struct, frozen=True):
    """Something to measure: slots of each checkout in a round, and what is in each (see `Plan`)."""

    name: str
    slots: int
    count: int
    length: int = 1_000
    drains: bool = False
    null: bool = False
    slack: int = 0


KINDS: Final = (
    Kind("delivery into a stream at 100/s", 20, 100),
    Kind("delivery into a stream at 1,000/s", 10, 1_000),
    Kind("delivery into a stream at 5,000/s", 4, 5_000),
    Kind("delivery into a stream at 1,000/s, with slack 50 ms", 10, 1_000, slack=50),
    Kind("delivery through the general path into a null target at 1,000/s", 10, 1_000, null=True),
    Kind("drain into Redis Streams", 6, 20_000, 2_000, drains=True),
    Kind("drain through the general path into a null target", 6, 20_000, 2_000, drains=True, null=True),
)


def changes(other: Path, rounds: int, *, quick: bool, kinds: Sequence[Kind] = KINDS) -> list[Figure]:
    """Measure both; the other's figures stand as limits. With `quick` a quarter of the slots."""
    checkouts = {"there": (python_of(other), other), "here": (sys.executable, ROOT)}
    figures: list[Figure] = []
    for kind in kinds:
        if quick:
            kind = msgspec.structs.replace(kind, slots=-(-kind.slots // 4))
        found = []
        for number in range(1, rounds + 1):
            progress(f"changes: {kind.name}, round {number} of {rounds}")
            names = list(checkouts)[:: 1 if number % 2 else -1]
            found.append(_measure(kind, {name: checkouts[name] for name in names}))
        figures += _figures(kind, [one["here"] for one in found], [one["there"] for one in found])
    return figures


def starts_of(kind: Kind, sides: int, begin: int) -> list[list[int]]:
    """When the slots of each side begin; who was last in a turn is first in the next one."""
    found: list[list[int]] = [[] for _ in range(sides)]
    for turn in range(kind.slots):
        for place in range(sides):
            side = place if turn % 2 == 0 else sides - 1 - place
            found[side].append(begin + (turn * sides + place) * kind.length)
    return found


def _measure(kind: Kind, checkouts: dict[str, tuple[str, Path]]) -> dict[str, Slots]:
    begin = int(now()) + UP + 1_000 * kind.slots * kind.count // PACE
    found = {}
    with ExitStack() as stack:
        running = {}
        for (name, (python, checkout)), starts in zip(
            checkouts.items(), starts_of(kind, len(checkouts), begin), strict=True
        ):
            plan = Plan(starts, kind.length, kind.count, kind.drains, kind.null, kind.slack)
            words = (python, "-P", str(SIDE), msgspec.json.encode(plan).decode())
            running[name] = stack.enter_context(program(words, {"PYTHONPATH": str(checkout)}, checkout))
        seconds = (begin - now()) / 1_000 + len(checkouts) * kind.slots * kind.length / 1_000
        for name, process in running.items():
            process.wait(seconds + 60)
            found[name] = msgspec.json.decode(process.said().splitlines()[-1], type=Slots)
    return found


def _figures(kind: Kind, here: Sequence[Slots], there: Sequence[Slots]) -> Iterator[Figure]:
    """Of the slots of each round."""
    parts = [
        _spent(one) | {f"its {name}": value for name, value in _spent(its).items()}
        for ours, theirs in zip(here, there, strict=True)
        for one, its in zip(ours, theirs, strict=True)
    ]
    yield _paired(kind.name, "CPU µs a message", _cost, here, there, goal=GOAL, at_most=True, parts=parts)
    if kind.drains:
        yield _paired(kind.name, "messages/s", lambda slot: slot["rate"], here, there, goal=0.98)


def _paired(
    name: str,
    unit: str,
    value: Callable[[dict[str, float]], float],
    here: Sequence[Slots],
    there: Sequence[Slots],
    *,
    goal: float,
    at_most: bool = False,
    parts: Sequence[dict[str, float]] = (),
) -> Figure:
    """What both have found, with the error by which the rounds differ."""
    rounds = [
        [Pair(value(one), value(its)) for one, its in zip(ours, theirs, strict=True)]
        for ours, theirs in zip(here, there, strict=True)
    ]
    ratios = [statistics.median(pair.ratio for pair in pairs) for pairs in rounds]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    pairs = [pair for one in rounds for pair in one]
    each = [{"error": error} | part for part in parts or [{}]]
    return paired(name, unit, pairs, goal=goal, at_most=at_most, parts=each)


def _spent(slot: dict[str, float]) -> dict[str, float]:
    return {name: slot[name] for name in ("worker", "Redis")}


def _cost(slot: dict[str, float]) -> float:
    return sum(_spent(slot).values())
