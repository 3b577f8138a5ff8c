"""What a benchmark found: figures beside their limits and goals, as text and as JSON."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.running.given import allocator
from delayq.store import checks
from delayq.store.connect.store import Store

__all__ = [
    "ALONE", "LEFT_OUT", "NAMES", "NOTES", "SECONDS", "STOLEN", "Environment", "Figure", "Pair", "Result", "commit",
    "environment", "load", "medians", "number", "paired", "percentile", "save", "single",
]  # fmt: skip

#: The benchmarks, in the order in which `all` runs them, and about how many seconds each takes in full on two quiet cores.
SECONDS: Final = {
    "schedule": 80, "http": 170, "access": 110, "drain": 200, "steady": 310, "lateness": 340, "burst": 70, "growth": 220,
    "memory": 80, "idle": 80, "failover": 290, "scale": 160, "targets": 550, "spark": 310, "peers": 380,
    "console": 50,
}  # fmt: skip
NAMES: Final = tuple(SECONDS)
#: Those that take too long to be one of `all`.
ALONE: Final = ("controls",)
#: The detail that tells which share of the CPU time the host gave to other machines.
STOLEN: Final = "CPU time stolen by the host"
#: The detail that tells what this machine could not measure, and why.
LEFT_OUT: Final = "left out"
#: The detail that has sentences to be told with the figures.
NOTES: Final = "notes"
#: What the name of a commit ends with where files are changed.
CHANGED: Final = "-changed"
_TOLD_FROM: Final = 0.03
ROOT: Final = Path(__file__).resolve().parent.parent


class Pair(msgspec.Struct, frozen=True):
    """One measurement, and the limit measured right beside it."""

    value: float
    limit: float

    @property
    def ratio(self) -> float:
        """How far the limit is reached."""
        return self.value / self.limit


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure, the limit of the same run, their ratio, and the goal.

    The goal is for the ratio where there is a limit, else for the value; it is a least one unless `at_most`.
    `runs` holds what the goal is for, run by run; `parts` what the value is made of, or what went with it.
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
        """What a goal is for."""
        return self.value if self.ratio is None else self.ratio

    @property
    def goal_text(self) -> str:
        """The goal with its sign, and its unit if it is not for the ratio."""
        if self.goal is None:
            return "–"
        unit = f" {self.unit}" if self.ratio is None and self.unit else ""
        return f"{'≤' if self.at_most else '≥'} {self.goal:g}{unit}"

    @property
    def verdict(self) -> str:
        """'reached', 'missed', or nothing without a goal."""
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
    """A number as people read it."""
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
    """The medians of what was measured in pairs; the ratio is the median of the pairs' ratios."""
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
    """The median of what was measured by itself."""
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
    """Of each part the median of its runs."""
    return {name: statistics.median(run[name] for run in runs) for name in (runs[0] if runs else ())}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the ordered values lie (nearest rank)."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and the versions that the figures belong to."""

    cpu: str
    cores: int
    memory: str
    kernel: str
    python: str
    redis_py: str
    server: str
    allocator: str
    feeder: str
    commit: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark found; `details` are for people who want to know why.

    `elsewhere`: delayq was measured on a Redis of the caller's own.
    """

    name: str
    quick: bool
    messages: int
    environment: Environment
    figures: list[Figure]
    details: dict[str, Any] = {}
    elsewhere: bool = False
    seconds: float = 0  # that it took

    @property
    def disturbance(self) -> str:
        """What the host took away meanwhile, in one sentence; nothing if that was little."""
        share = self.details.get(STOLEN, 0)
        if share <= _TOLD_FROM:
            return ""
        return f"The host gave {share:.0%} of the CPU time to other machines: latencies say little, ratios less than usual."


def _found(path: str, pattern: str) -> str:
    try:
        match = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else "unknown"


def _said(*command: str) -> str:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def commit() -> str:
    """What is checked out here; `-changed` where that is not all."""
    return (_said("git", "rev-parse", "--short=12", "HEAD") or "unknown") + (
        CHANGED if _said("git", "status", "--porcelain") else ""
    )


def environment(url: str, feeder: str) -> Environment:
    """Ask the machine, and the server at `url`."""
    with closing(Store(url)) as store:
        server = store.run(checks.server())
    memory = _found("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    return Environment(
        cpu=_found("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        cores=os.cpu_count() or 0,
        memory=f"{int(memory) / 1024**2:.0f} GiB" if memory.isdigit() else memory,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        redis_py=version("redis"),
        server=f"{server.name} {server.version}" + (f", {server.primaries} primaries" * (server.primaries > 1)),
        allocator=allocator(url),
        feeder=_said(feeder, "--version") if feeder else "a socket",
        commit=commit(),
    )


def save(path: Path, results: Sequence[Result]) -> None:
    """Write results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def load(path: Path) -> list[Result]:
    """Read results that `save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Result])
