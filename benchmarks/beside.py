"""A benchmark of this checkout and of another one, in turns: what changed from one commit to the next.

The other checkout runs its own benchmark of that name by its own .venv. Figures of the same name are set side by side, and
where a figure has a limit their ratios to it; what is told is the median of the rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.harness import in_turns
from benchmarks.results import ROOT, Figure, Pair, Result, load, number, paired, single
from benchmarks.running.processes import program

__all__ = ["beside", "figures_beside", "python_of"]

SECONDS = 3_600.0


def beside(name: str, other: Path, rounds: int, *, quick: bool) -> list[Figure]:
    """Measure both, so often; the other's figures stand as limits."""
    measures = {
        "there": partial(_run, python_of(other), other, name, quick),
        "here": partial(_run, sys.executable, ROOT, name, quick),
    }
    found = in_turns(f"{name}, here and in {other}", rounds, measures, swap=True)
    return figures_beside([one["here"] for one in found], [one["there"] for one in found])


def python_of(checkout: Path) -> str:
    """The Python of a checkout."""
    python = checkout / ".venv" / "bin" / "python"
    if not python.exists():
        raise BenchmarkError(f"{checkout} is no checkout with a .venv: run ./dev there once")
    return str(python)


def figures_beside(here: Sequence[Result], there: Sequence[Result]) -> list[Figure]:
    """Of whatever both have found in every round: what was zero there has no ratio, and is told if it is not zero here."""
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


def _found(result: Result) -> dict[tuple[str, str], float]:
    """By name and unit: what goals are for, and all parts."""
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
