"""What operators do, and what it costs: figures of the controls, part by part.

Each part is measured in a module of its own beside this one. `--part NAME` measures one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, progress
from benchmarks.measures import (
    controls_audit,
    controls_holding,
    controls_limits,
    controls_reading,
    controls_scheduling,
    controls_search,
)
from benchmarks.results import NOTES, Figure

__all__ = ["PARTS", "run"]

#: Each part: its figures and details.
PARTS: Final[Mapping[str, Callable[[Scale], tuple[list[Figure], dict[str, Any]]]]] = {
    "holding": controls_holding.run,
    "limits": controls_limits.run,
    "reading": controls_reading.run,
    "audit": controls_audit.run,
    "search": controls_search.run,
    "scheduling": controls_scheduling.run,
}


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure the parts, or the one that is wanted."""
    if scale.part not in ("", *PARTS):
        raise BenchmarkError(f"the parts of controls are {', '.join(PARTS)}")
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    for name, measure in PARTS.items():
        if scale.part in ("", name):
            progress(f"controls, {name}")
            found, more = measure(scale)
            figures += found
            details |= more | {NOTES: [*details.get(NOTES, ()), *more.get(NOTES, ())]}
    return figures, details
