"""docs/benchmarks.md is rendered from full runs of all benchmarks of one commit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks import report
from benchmarks.results import STOLEN, load
from tests.benchmarks.samples import all_results


def test_the_page_shows_figures_goals_and_machine(tmp_path: Path) -> None:
    first, *others = all_results()
    results = [msgspec.structs.replace(first, details={STOLEN: 0.19}), *others]
    page = report.render(results, tmp_path).read_text()
    for part in (
        "| plain | 190,000 messages/s | 200,000 | 0.95 | 0.95 – 0.95 (3) | ≥ 0.9 | reached |",
        "| into streams | 80,000 messages/s | 160,000 | 0.50 |  | ≥ 1.1 | missed |",
        "7 of 8 goals are reached",
        "* missed: drain, into streams",
        "A processor, 2 cores, 8 GiB, Linux 6.1",
        "valkey 9.1.2, memory by libc",
        "0123456789ab",
        "The host gave 19% of the CPU time",
    ):
        assert part in page
    assert load(tmp_path / "benchmarks" / "results.json") == results


def test_what_is_quick_elsewhere_incomplete_or_of_another_commit_is_never_rendered(tmp_path: Path) -> None:
    first, *others = all_results()
    other_commit = msgspec.structs.replace(first.environment, commit="fedcba987654")
    for results in (
        others,
        [msgspec.structs.replace(first, quick=True), *others],
        [msgspec.structs.replace(first, elsewhere=True), *others],
        [msgspec.structs.replace(first, environment=other_commit), *others],
    ):
        with pytest.raises(ValueError, match="full runs of one commit"):
            report.render(results, tmp_path)
    assert list(tmp_path.iterdir()) == []
