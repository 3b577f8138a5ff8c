"""Whether what processes hold grows: the slope of each process's samples, beside what may be."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from reliability.soak.sampling import Sample

#: s from a process's start that do not count: ended messages are remembered for 60 s, delays are up to 20 s.
WARM_UP: Final = 90.0
#: The judgement of a process needs samples of this many s after that.
LEAST: Final = 120.0

#: MiB that the resident memory of Redis may grow by: its allocator keeps some freed memory, and `used` has its data.
REDIS: Final = 32.0
#: The permitted growth of each measure over the samples, given their median.
BOUNDS: Final[Mapping[str, Callable[[float], float]]] = {
    "rss": lambda median: max(4.0, 0.05 * median),
    "used": lambda median: max(1.0, 0.05 * median),
    "fds": lambda median: 3.0,
    "threads": lambda median: 1.0,
}


class Trend(msgspec.Struct, frozen=True):
    """How a measure of a process went over `seconds`, and in each half of them.

    It grows if it grew by more than `bound`, and in each half by more than half of that. A single step is no growth, such
    as the connections of a worker that replaced another one. A leak grows all the time.
    """

    name: str
    measure: str
    seconds: float
    median: float
    grew: float
    halves: tuple[float, float]
    bound: float

    @property
    def flat(self) -> bool:
        """Whether it does not grow; shrinking is no growth."""
        return self.grew <= self.bound or min(self.halves) <= self.bound / 2


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil–Sen: the median of the slopes between any two points, which single outliers do not move."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in itertools.combinations(points, 2) if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0


def judge(samples: Sequence[Sample], *, embedded: bool = False) -> tuple[list[Trend], list[str]]:
    """The trends of every process, and the names of those that never lived long enough for one.

    The embedded server's resident memory is not judged: it is configured to keep freed memory, up to some hundred MiB.

    A process that a fault has restarted begins again; its longest life is judged.
    """
    trends, unjudged = [], []
    for name in dict.fromkeys(one.name for one in samples):
        settled = max((_settled(life) for life in _lives(name, samples)), key=_span)
        if _span(settled) < LEAST:
            unjudged.append(name)
            continue
        measures = [measure for measure in BOUNDS if (name, measure, embedded) != ("redis", "rss", True)]
        trends += [trend for measure in measures if (trend := _trend(settled, measure)) is not None]
    return trends, unjudged


def _lives(name: str, samples: Sequence[Sample]) -> list[list[Sample]]:
    lives: dict[int, list[Sample]] = {}
    for one in samples:
        if one.name == name:
            lives.setdefault(one.pid, []).append(one)
    return list(lives.values())


def _settled(life: Sequence[Sample]) -> list[Sample]:
    return [one for one in life if one.at >= life[0].at + WARM_UP]


def _span(life: Sequence[Sample]) -> float:
    return life[-1].at - life[0].at if life else 0.0


def _trend(life: Sequence[Sample], measure: str) -> Trend | None:
    points = [(one.at, float(value)) for one in life if (value := getattr(one, measure)) is not None]
    if not points:
        return None
    seconds = points[-1][0] - points[0][0]
    median = statistics.median(value for _, value in points)
    middle = len(points) // 2
    halves = (slope(points[:middle]) * seconds / 2, slope(points[middle:]) * seconds / 2)
    name = life[0].name
    bound = REDIS if (name, measure) == ("redis", "rss") else BOUNDS[measure](median)
    return Trend(name, measure, seconds, median, slope(points) * seconds, halves, bound)
