"""This checkout beside another one: what changed from one commit to the next.

`beside` runs one benchmark in both checkouts in turn, each with its own .venv. It compares figures of the same name, and
the ratio to the limit of a figure that has one. `changes` measures the cost of a message in both at the same time, slot by
slot (see `slots`). It can show a difference of one or two percent.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import in_turns
from benchmarks.load.side import Slot
from benchmarks.results import ROOT, Figure, Pair, Result, load, number, paired, single
from benchmarks.running.processes import program
from benchmarks.slots import (
    BACKLOG,
    KEYED_BACKLOG,
    KEYED_NULL_BACKLOG,
    NULL_BACKLOG,
    Kind,
    Side,
    costs,
    in_slots,
    rates,
)

SECONDS = 3_600.0
#: Goals of a change that is to cost nothing: for the cost of a message, and for the rate of a backlog.
COST: Final = 1.02
RATE: Final = 0.98

KINDS: Final = (
    Kind("delivery into a stream at 100/s", 20, Slot(100)),
    Kind("delivery into a stream at 1,000/s", 10, Slot(1_000)),
    Kind("delivery into a stream at 5,000/s", 4, Slot(5_000)),
    Kind("delivery into a stream at 1,000/s, with slack 50 ms", 10, Slot(1_000, slack=50)),
    Kind("delivery through the general path into a null target at 1,000/s", 10, Slot(1_000, null=True)),
    Kind("drain into Redis Streams", 6, BACKLOG),
    Kind("drain through the general path into a null target", 6, NULL_BACKLOG),
    Kind("drain with a business key into Redis Streams", 6, KEYED_BACKLOG),
    Kind("drain with a business key into a null target", 6, KEYED_NULL_BACKLOG),
)


def changes(other: Path, rounds: int, *, quick: bool, kinds: Sequence[Kind] = KINDS) -> list[Figure]:
    """Measure both checkouts slot by slot; the figures of the other one are the limits.

    With `quick`, a quarter of the slots.
    """
    sides = {"there": Side(_python_of(other), other), "here": Side()}
    figures: list[Figure] = []
    for kind in kinds:
        if quick:
            kind = msgspec.structs.replace(kind, slots=-(-kind.slots // 4))
        found = in_slots(kind, sides, rounds)
        figures.append(costs(kind.name, found["here"], found["there"], goal=COST))
        if kind.slot.drains:
            figures.append(rates(kind.name, found["here"], found["there"], goal=RATE))
    return figures


def beside(name: str, other: Path, rounds: int, *, quick: bool) -> list[Figure]:
    """Run one benchmark in both checkouts, `rounds` times in turn; the figures of the other one are the limits."""
    measures = {
        "there": partial(_run, _python_of(other), other, name, quick),
        "here": partial(_run, sys.executable, ROOT, name, quick),
    }
    found = in_turns(f"{name}, here and in {other}", rounds, measures, swap=True)
    return figures_beside([one["here"] for one in found], [one["there"] for one in found])


def figures_beside(here: Sequence[Result], there: Sequence[Result]) -> list[Figure]:
    """The figures that both checkouts found in every round.

    A figure that was zero there has no ratio. It is listed if it is not zero here.
    """
    ours, theirs = list(map(_found, here)), list(map(_found, there))
    figures = []
    for name, unit in ours[0]:
        if not all((name, unit) in one for one in (*ours, *theirs)):
            continue
        pairs = [Pair(one[name, unit], other[name, unit]) for one, other in zip(ours, theirs, strict=True)]
        if all(pair.limit for pair in pairs):
            figures.append(paired(name, unit, pairs))
        elif any(pair.value != pair.limit for pair in pairs):
            figures.append(
                single(
                    f"{name}, {' and '.join(number(pair.limit) for pair in pairs)} there",
                    unit,
                    [pair.value for pair in pairs],
                )
            )
    return figures


def _python_of(checkout: Path) -> str:
    """The path of a checkout's Python."""
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise BenchmarkError(f"{checkout} is no checkout with a .venv: run ./dev there once")
    return str(python)


def _found(result: Result) -> dict[tuple[str, str], float]:
    """The measured values of a result and all their parts, by name and unit."""
    found = {}
    for figure in result.figures:
        found[figure.name, figure.unit if figure.ratio is None else "× its limit"] = figure.measured
        found |= {(f"… {part}", f"in {figure.name}"): value for part, value in figure.parts.items()}
    return found


def _run(python: str, checkout: Path, name: str, quick: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        file = Path(folder) / "found.json"
        words = (python, "-m", "benchmarks", name, "--json", str(file), *(["--quick"] if quick else []))
        with program(words, cwd=checkout) as process:
            process.wait(SECONDS)
        return load(file)[0]
