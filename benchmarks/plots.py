"""The plots of docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.results import Figure, Result, number

REACHED: Final = "#2a7f62"
MISSED: Final = "#c4572e"
NO_GOAL: Final = "#7c8793"
GOAL: Final = "#1f2933"
#: The approximate width of a bar's label, as a share of the plot.
LABEL: Final = 0.1


def draw(results: Sequence[Result], folder: Path) -> list[tuple[str, Path]]:
    """Write the plots into a folder; return the title and path of each."""
    matplotlib.rcParams["svg.hashsalt"] = "delayq"  # the same results give the same file
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {result.name: result.figures for result in results}
    against_limits = [
        (f"{result.name}: {figure.name}", figure)
        for result in results
        for figure in result.figures
        if figure.ratio is not None and figure.goal is not None
    ]
    drawn = []
    if against_limits:
        drawn.append(("Measured ÷ limit", _ratios(against_limits, folder / "ratios.svg")))
    if late := by_name.get("lateness"):
        drawn.append(("Lateness", _lateness(late, folder / "lateness.svg")))
    if memory := [one for one in by_name.get("footprint", []) if one.unit == "B"]:
        drawn.append(("Memory", _values(memory, "bytes; the dark line is the goal", folder / "memory.svg")))
    if stops := [figure for figure in by_name.get("failover", []) if figure.unit == "s" and figure.goal is not None]:
        what = "seconds; the dark line is the goal"
        drawn.append(("Deliveries after a fault", _values(stops, what, folder / "failover.svg")))
    if rates := [figure for figure in by_name.get("scale", []) if figure.unit == "messages/s"]:
        drawn.append(("More nodes, more primaries", _values(rates, "messages/s on one machine", folder / "scale.svg")))
    return drawn


def _colour(figure: Figure) -> str:
    return {True: REACHED, False: MISSED, None: NO_GOAL}[figure.reached]


def _canvas(height: float) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=(9, height), layout="constrained")
    axes = canvas.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return canvas, axes


def _save(canvas: Canvas, path: Path) -> Path:
    canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def _bars(axes: Axes, names: Sequence[str], figures: Sequence[Figure], lengths: Sequence[float]) -> None:
    places = range(len(figures))
    label = LABEL * max(*lengths, *(figure.goal or 0 for figure in figures))
    axes.barh(places, lengths, color=[_colour(figure) for figure in figures], height=0.6)
    for place, figure, length in zip(places, figures, lengths, strict=True):
        label_from = length
        if figure.goal is not None:
            axes.plot([figure.goal] * 2, [place - 0.4, place + 0.4], color=GOAL, linewidth=2)
            if length < figure.goal < length + label:  # the line would cross the label
                label_from = figure.goal
        axes.text(label_from, place, f" {number(length)}", va="center", fontsize=8)
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()


def _ratios(named: Sequence[tuple[str, Figure]], path: Path) -> Path:
    canvas, axes = _canvas(1 + 0.35 * len(named))
    figures = [figure for _, figure in named]
    _bars(axes, [name for name, _ in named], figures, [figure.ratio or 0 for figure in figures])
    axes.set_xlabel("ratio; the dark line is the goal")
    return _save(canvas, path)


def _values(figures: Sequence[Figure], what: str, path: Path) -> Path:
    canvas, axes = _canvas(1 + 0.35 * len(figures))
    _bars(axes, [figure.name for figure in figures], figures, [figure.value for figure in figures])
    axes.set_xlabel(what)
    return _save(canvas, path)


def _lateness(figures: Sequence[Figure], path: Path) -> Path:
    canvas, axes = _canvas(3.5)
    rates: dict[str, list[tuple[str, Figure]]] = {}
    for figure in figures:
        if found := re.fullmatch(r"(at .+/s), (p[\d.]+|max)", figure.name):
            rates.setdefault(found.group(1), []).append((found.group(2), figure))
    for shade, (rate, percentiles) in zip((REACHED, MISSED, NO_GOAL), rates.items(), strict=False):
        places = range(len(percentiles))
        values = [figure.value for _, figure in percentiles]
        axes.plot(places, values, marker="o", color=shade, label=rate)
        goals = [(place, figure.goal) for place, (_, figure) in enumerate(percentiles) if figure.goal is not None]
        axes.scatter(
            [place for place, _ in goals],
            [goal for _, goal in goals],
            s=400,
            marker="_",
            color=shade,
            label=f"{rate}, goal",
        )
        axes.set_xticks(places, [name for name, _ in percentiles])
    axes.set_yscale("log")
    axes.set_ylabel("ms late at the consumer")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    return _save(canvas, path)
