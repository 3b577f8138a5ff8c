"""Renders docs/benchmarks.md from full runs of all benchmarks of one commit."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.results import LEFT_OUT, NAMES, NOTES, ROOT, Environment, Figure, Result, number, save

DOCS: Final = ROOT / "docs"

_HEAD: Final = """\
# Benchmarks

This page shows how fast delayq is and how much CPU and memory it takes, each figure beside a limit or a goal.

`./dev bench all` renders it from [results.json](benchmarks/results.json); do not edit it. Compare ratios: absolute figures
depend on the machine. A limit is measured in the same run, in turn with delayq's own figure. A ratio is the median of the
ratios of these pairs. The column *runs* has the smallest and the largest run (or pair) and their number. Several figures
are repeated until the error of the median is at most 2 %. Everything runs on one machine against one Valkey with AOF
(everysec) and fresh data. It does not rewrite its AOF during a run, except for lateness and idle workers. The sections
failover and scale describe their servers.
"""


def publishable(results: Sequence[Result]) -> bool:
    """Whether the results have all benchmarks of one commit, each in full and on its own servers."""
    whole = not any(result.quick or result.elsewhere for result in results)
    one_commit = len({result.environment.commit for result in results}) == 1
    return whole and one_commit and {result.name for result in results} == set(NAMES)


def render(results: Sequence[Result], docs: Path = DOCS) -> Path:
    """Write the page and the results; raises ValueError if they are not publishable."""
    if not publishable(results):
        raise ValueError(f"the page is rendered from full runs of one commit of all of {', '.join(NAMES)} only")
    save(docs / "benchmarks" / "results.json", results)
    page = docs / "benchmarks.md"
    page.write_text(text(results), encoding="utf-8")
    return page


def text(results: Sequence[Result]) -> str:
    """The text of the page."""
    return "\n".join([_HEAD, _summary(results), _environments(results), *map(_section, results)])


def _summary(results: Sequence[Result]) -> str:
    figures = [figure for result in results for figure in result.figures if figure.goal is not None]
    reached = sum(figure.reached is True for figure in figures)
    missed = [
        f"* missed: {result.name}, {figure.name}"
        for result in results
        for figure in result.figures
        if figure.reached is False
    ]
    return "\n".join([f"**{reached} of {len(figures)} goals are reached.**", "", *missed, *([""] if missed else [])])


def _environments(results: Sequence[Result]) -> str:
    found: dict[Environment, list[str]] = {}
    for result in results:
        found.setdefault(result.environment, []).append(result.name)
    if len(found) == 1:
        return _table(("", ""), _rows(results[0].environment))
    return "\n".join(
        f"Of {', '.join(names)}:\n\n{_table(('', ''), _rows(environment))}" for environment, names in found.items()
    )


def _rows(environment: Environment) -> list[tuple[str, ...]]:
    return [
        (
            "machine",
            f"{environment.cpu}, {environment.cores} cores, {environment.memory}, {environment.kernel}",
        ),
        ("server", f"{environment.server}, memory by {environment.allocator}"),
        ("Python", f"{environment.python}, redis-py {environment.redis_py}"),
        ("delayq", environment.commit),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _section(result: Result) -> str:
    about = (importlib.import_module(f"benchmarks.measures.{result.name}").__doc__ or "").strip()
    head = ("", "measured", "limit", "ratio", "runs", "goal", "")
    disturbed = f"{result.disturbance}\n\n" if result.disturbance else ""
    told = [f"Left out, {what}: {why}" for what, why in result.details.get(LEFT_OUT, {}).items()]
    if notes := result.details.get(NOTES):
        told.append(" ".join(notes))
    before = "".join(f"{sentence}\n\n" for sentence in told)
    return f"## {result.name}\n\n{about}\n\n{disturbed}{before}{_table(head, map(_row, result.figures))}"


def _row(figure: Figure) -> tuple[str, ...]:
    limit = "" if figure.limit is None else number(figure.limit)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    runs = ""
    if len(figure.runs) > 1:
        runs = f"{number(min(figure.runs))} – {number(max(figure.runs))} ({len(figure.runs)})"
    goal = "" if figure.goal is None else figure.goal_text
    name = f"{figure.name} ({figure.parts_text})" if figure.parts else figure.name
    return (name, f"{number(figure.value)} {figure.unit}".strip(), limit, ratio, runs, goal, figure.verdict)
