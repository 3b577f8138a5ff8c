"""The results of a benchmark: figures with their limits and goals, as text and as JSON."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

#: The benchmarks in the order in which `all` runs them, and about how many seconds each takes in full on two quiet cores.
SECONDS: Final = {
    "schedule": 80, "http": 280, "drain": 200, "steady": 310, "lateness": 410, "growth": 220, "client": 20, "footprint": 160,
    "failover": 290, "scale": 160, "targets": 550, "spark": 310, "peers": 380, "console": 50,
    "consume": 110,
}  # fmt: skip
NAMES: Final = tuple(SECONDS)
#: Benchmarks that take too long for `all`.
ALONE: Final = ("controls",)
#: The detail with the share of the CPU time that the host gave to other machines.
STOLEN: Final = "CPU time stolen by the host"
#: The detail with what this machine could not measure, and why.
LEFT_OUT: Final = "left out"
#: The detail with sentences that are printed with the figures.
NOTES: Final = "notes"
#: The end of a commit's name if files are changed.
CHANGED: Final = "-changed"
_TOLD_FROM: Final = 0.03
ROOT: Final = Path(__file__).resolve().parent.parent


class Pair(msgspec.Struct, frozen=True):
    """One measurement, and the limit that was measured right before or after it."""

    value: float
    limit: float

    @property
    def ratio(self) -> float:
        """The measurement divided by its limit."""
        return self.value / self.limit


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, the limit of the same run, their ratio, and the goal.

    The goal applies to the ratio if there is a limit, else to the value. It is a minimum unless `at_most`. `runs` has the
    ratio or value of each run; `parts` has the parts of the value, or figures that belong to it.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    goal: float | None = None
    at_most: bool = False
    runs: list[float] = []
    parts: dict[str, float] = {}

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached; None without a goal."""
        if self.goal is None:
            return None
        return self.measured <= self.goal if self.at_most else self.measured >= self.goal

    @property
    def measured(self) -> float:
        """The number to which the goal applies."""
        return self.value if self.ratio is None else self.ratio

    @property
    def goal_text(self) -> str:
        """The goal with its sign, and with its unit if it applies to the value."""
        if self.goal is None:
            return "–"
        unit = f" {self.unit}" if self.ratio is None and self.unit else ""
        return f"{'≤' if self.at_most else '≥'} {self.goal:g}{unit}"

    @property
    def verdict(self) -> str:
        """'reached', 'missed', or an empty text without a goal."""
        return {True: "reached", False: "missed", None: ""}[self.reached]

    def line(self) -> str:
        """The figure in one line."""
        parts = [f"{self.name}: {number(self.value)} {self.unit}".rstrip()]
        if self.limit is not None and self.ratio is not None:
            parts += [f"limit {number(self.limit)}", f"ratio {self.ratio:.2f}"]
        if self.goal is not None:
            parts += [f"goal {self.goal_text}", self.verdict]
        return " · ".join(parts) + (f" ({self.parts_text})" if self.parts else "")

    @property
    def parts_text(self) -> str:
        """The parts in one line."""
        return ", ".join(f"{name} {number(value)}" for name, value in self.parts.items())


def number(value: float) -> str:
    """Format a number for readers."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def paired(
    name: str,
    unit: str,
    pairs: Sequence[Pair],
    *,
    goal: float | None = None,
    at_most: bool = False,
    parts: Sequence[dict[str, float]] = (),
) -> Figure:
    """A figure of pairs: the medians of values and limits, and the median of the pairs' ratios."""
    ratios = [pair.ratio for pair in pairs]
    return Figure(
        name=name,
        unit=unit,
        goal=goal,
        at_most=at_most,
        runs=ratios,
        parts=medians(parts),
        value=statistics.median(pair.value for pair in pairs),
        limit=statistics.median(pair.limit for pair in pairs),
        ratio=statistics.median(ratios),
    )


def single(
    name: str,
    unit: str,
    runs: Sequence[float],
    *,
    goal: float | None = None,
    at_most: bool = True,
    parts: Sequence[dict[str, float]] = (),
) -> Figure:
    """A figure without a limit: the median of the runs."""
    return Figure(
        name=name,
        unit=unit,
        value=statistics.median(runs),
        goal=goal,
        at_most=at_most,
        runs=list(runs),
        parts=medians(parts),
    )


def medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each part over the runs."""
    return {name: statistics.median(run[name] for run in runs) for name in (runs[0] if runs else ())}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the ordered values are (nearest rank)."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and the versions of a result."""

    cpu: str
    cores: int
    memory: str
    kernel: str
    python: str
    redis_py: str
    server: str
    allocator: str
    commit: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one benchmark; `details` help to explain them.

    `elsewhere`: delayq was measured on the Redis of `--redis-url`.
    """

    name: str
    quick: bool
    messages: int
    environment: Environment
    figures: list[Figure]
    details: dict[str, Any] = {}
    elsewhere: bool = False
    seconds: float = 0  # that the run took

    @property
    def disturbance(self) -> str:
        """One sentence about the CPU time that the host took away; an empty text if it was little."""
        share = self.details.get(STOLEN, 0)
        if share <= _TOLD_FROM:
            return ""
        return f"The host gave {share:.0%} of the CPU time to other machines: latencies say little, ratios less than usual."


def text_of(*command: str) -> str:
    """The output of a command; an empty text if it fails."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def commit() -> str:
    """The commit of this checkout, with `-changed` at its end if files are changed."""
    return (text_of("git", "rev-parse", "--short=12", "HEAD") or "unknown") + (
        CHANGED if text_of("git", "status", "--porcelain") else ""
    )


def save(path: Path, results: Sequence[Result]) -> None:
    """Write results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def load(path: Path) -> list[Result]:
    """Read the results of `save`."""
    return msgspec.json.decode(path.read_bytes(), type=list[Result])
