"""The result of a soak: a verdict, as lines and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from reliability.chaos.checker import Verdict
from reliability.chaos.history import FAULTS, FORWARDS, read
from reliability.chaos.options import Options
from reliability.soak.flatness import LEAST, WARM_UP, Trend, judge
from reliability.soak.sampling import Sample

JSON = "soak.json"
#: s of a run from which on every process must have been judged: what restarts one comes in its first half.
LONG_ENOUGH = 2 * (WARM_UP + LEAST + 15)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`wrong` is empty when all is well; `lateness` is ms by its percentile, of delivered messages."""

    options: dict[str, Any]
    line: str
    accepted: int
    rate: float
    lateness: dict[str, float]
    wrong: dict[str, Any]
    trends: list[Trend]
    unjudged: list[str]
    faults: list[dict[str, Any]]
    samples: list[Sample]

    def table(self) -> str:
        """The verdict, line by line."""
        lines = [f"accepted {self.accepted:,}: {self.rate:,.0f} a second"]
        lines.append("lateness, ms: " + ", ".join(f"{name} {value:,.0f}" for name, value in self.lateness.items()))
        lines.append(
            f"{'process':<8} {'measure':<8} {'over s':>7} {'median':>9} {'grew':>8} {'in halves':>15} {'may grow':>9}"
        )
        for one in self.trends:
            lines.append(
                f"{one.name:<8} {one.measure:<8} {one.seconds:>7.0f} {one.median:>9.1f} {one.grew:>+8.2f} "
                f"{one.halves[0]:>+7.2f} {one.halves[1]:>+7.2f} {one.bound:>9.2f}  {'flat' if one.flat else 'GROWS'}"
            )
        if self.unjudged:
            lines.append(f"not judged, too short a life: {', '.join(self.unjudged)}")
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """The last line but for the counts."""
        if self.wrong:
            return "verdict: WRONG"
        return "verdict: guarantees kept, " + ("flat" if not self.unjudged else "flatness not judged for all")


def make(options: Options, verdict: Verdict, samples: Sequence[Sample]) -> Report:
    """The report of a run that has ended."""
    trends, unjudged = judge(samples, embedded=not options.redis)
    wrong = dict(verdict.wrong)
    if growing := [f"{one.measure} of {one.name}" for one in trends if not one.flat]:
        wrong["grows"] = growing
    if not samples or (unjudged and options.seconds >= LONG_ENOUGH):
        wrong["no judgement is possible for"] = unjudged
    return Report(
        options=options.plain(),
        line=verdict.line,
        accepted=verdict.messages,
        wrong=wrong,
        trends=trends,
        rate=verdict.messages / options.seconds,
        lateness=_lateness(options.folder),
        unjudged=unjudged,
        faults=list(read(options.folder / FAULTS)),
        samples=list(samples),
    )


def _lateness(folder: Path) -> dict[str, float]:
    late = [when - due for line in read(folder / FORWARDS) for when, _, due, _ in line["of"]]
    if len(late) < 2:
        return {}
    parts = statistics.quantiles(late, n=1_000)
    return {"p50": parts[499], "p99": parts[989], "p99.9": parts[998], "most": max(late)}


def save(report: Report, folder: Path) -> None:
    """As JSON."""
    (folder / JSON).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
