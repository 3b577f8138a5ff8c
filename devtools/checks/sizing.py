"""The figures of docs/sizing.md, compared with the benchmark results in docs/benchmarks."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator
from typing import Any, Final

from devtools.pages import DOCS, at, read

PAGE: Final = DOCS / "sizing.md"
RESULTS: Final = DOCS / "benchmarks" / "results.json"
#: The allowed difference of a rounded figure from the measured one, which varies as much.
ABOUT: Final = 0.2
BEYOND: Final = r"about (\d+) bytes on Redis, (\d+) on Valkey\."
KEY: Final = r"Each business key is (\d+) bytes more on Redis, (\d+) on Valkey"
EXAMPLE: Final = r"10,000,000 × \((\d+) \+ (\d+) \+ (\d+) \+ (\d+)\) bytes = ([\d.]+) GB"
RECORD: Final = [35.0, 13.0 + 8 + 200]  # bytes of a record's head, and of the example's id, topic and body
MEMORY: Final = ((BEYOND, "a message beyond its record"), (KEY, "one business key beyond it"))
CPU: Final = (
    ("scheduled in bulk, by Python", "schedule", "plain"),
    ("… over HTTP, batches of 100", "http", "batches of 100"),
    ("… over HTTP, single messages", "http", "single messages"),
    ("delivered into streams of the same Redis", "drain", "into Redis Streams, plain"),
    ("delivered to a target (without what the target itself costs)", "drain",
     "through the general path into a null target"),
)  # fmt: skip


class _Page:
    """The figures of the page, each with its line."""

    def __init__(self, text: str) -> None:
        self._text = text

    def compare(self, pattern: str, wanted: list[float], tolerance: float = ABOUT) -> Iterator[str]:
        """A complaint unless the numbers that the pattern finds are about those that are wanted."""
        got, line = self.numbers(pattern)
        if len(got) != len(wanted) or not all(
            math.isclose(one, other, rel_tol=tolerance) for one, other in zip(got, wanted, strict=True)
        ):
            should = ", ".join(f"{one:.4g}" for one in wanted)
            found = ", ".join(f"{one:g}" for one in got) or f"nothing like {pattern!r}"
            yield at(PAGE, line, f"{found} should be about {should}, by docs/benchmarks/results.json")

    def numbers(self, pattern: str) -> tuple[list[float], int]:
        """The numbers that the pattern finds, and the line. A blank of the pattern may be a line break of the page."""
        found = re.search(pattern.replace(" ", r"\s+"), self._text)
        if found is None:
            return [], 1
        return [float(one) for one in found.groups()], self._text.count("\n", 0, found.start()) + 1


def complaints() -> Iterator[str]:
    """Every figure is about what was measured, and the example is calculated from the figures."""
    results: dict[str, Any] = {one["name"]: one for one in json.loads(read(RESULTS))}
    page = _Page(read(PAGE))
    for pattern, name in MEMORY:
        measured = {one["name"]: float(one["value"]) for one in results["footprint"]["figures"]}
        yield from page.compare(pattern, [measured[f"{server}, {name}"] for server in ("Redis", "Valkey")])
    for row, benchmark, name in CPU:
        runs = results[benchmark]["details"][f"{name}, CPU µs a message"]
        (other,) = runs[0].keys() - {"server"}
        wanted = [statistics.median(one[column] for one in runs) for column in ("server", other)]
        yield from page.compare(rf"\| {re.escape(row).replace(chr(92) + ' ', ' ')} \| ([\d.]+) \| ([\d.]+) \|", wanted)
    (idle,) = (one["value"] for one in results["footprint"]["figures"] if one["name"] == "worker's CPU")
    yield from page.compare(r"16 idle queues take ([\d.]+) % of a worker's core", [idle])
    parts = RECORD + [page.numbers(pattern)[0][0] for pattern in (BEYOND, KEY)]
    yield from page.compare(EXAMPLE, [*parts, sum(parts) / 100], 0.01)
