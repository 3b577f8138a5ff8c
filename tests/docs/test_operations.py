"""The sizing in docs/operations.md goes by the benchmarks that are kept in docs/benchmarks."""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

import pytest

from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RESULTS = {one["name"]: one for one in json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())}
#: By how much a rounded figure may differ from the measured one, which varies by as much.
ABOUT = 0.2


def memory(name: str) -> float:
    return next(float(one["value"]) for one in RESULTS["memory"]["figures"] if one["name"] == name)


def cpu(benchmark: str, name: str) -> tuple[float, float]:
    """Of Redis, and of the other process; µs a message."""
    runs: list[dict[str, Any]] = RESULTS[benchmark]["details"][f"{name}, CPU µs a message"]
    (other,) = runs[0].keys() - {"server"}
    return statistics.median(one["server"] for one in runs), statistics.median(one[other] for one in runs)


def numbers(pattern: str) -> list[float]:
    found = re.search(pattern, re.sub(r"\s+", " ", TEXT))
    assert found is not None, pattern
    return [float(one) for one in found.groups()]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"about (\d+) bytes on Redis, (\d+) on Valkey\.", "a message beyond its record"),
        (r"Each business key is (\d+) bytes more on Redis, (\d+) on Valkey", "one business key beyond it"),
    ],
)
def test_memory(pattern: str, names: str) -> None:
    assert numbers(pattern) == pytest.approx(
        [memory(f"{server}, {names}") for server in ("Redis", "Valkey")], rel=ABOUT
    )


@pytest.mark.parametrize(
    ("row", "benchmark", "name"),
    [
        ("scheduled in bulk, by Python", "schedule", "plain"),
        ("… over HTTP, batches of 100", "http", "batches of 100"),
        ("… over HTTP, single messages", "http", "single messages"),
        ("forwarded into streams of the same Redis", "drain", "into Redis Streams, plain"),
        ("forwarded to a target (without what the target itself costs)", "drain",
         "through the general path into a null target"),
    ],
)  # fmt: skip
def test_cpu(row: str, benchmark: str, name: str) -> None:
    assert numbers(rf"\| {re.escape(row)} \| ([\d.]+) \| ([\d.]+) \|") == pytest.approx(cpu(benchmark, name), rel=ABOUT)


def test_idling() -> None:
    (figure,) = (one for one in RESULTS["idle"]["figures"] if one["name"] == "worker's CPU")
    assert numbers(r"16 idle queues take ([\d.]+) % of a worker's core") == pytest.approx([figure["value"]], rel=ABOUT)


def test_the_example_is_reckoned_by_the_figures() -> None:
    record, content, beyond, key, gigabytes = numbers(
        r"10,000,000 × \((\d+) \+ (\d+) \+ (\d+) \+ (\d+)\) bytes = ([\d.]+) GB"
    )
    assert (record, content) == (35, 13 + 8 + 200)
    assert [beyond, key] == [numbers(r"about (\d+) bytes on Redis")[0], numbers(r"key is (\d+) bytes more on Redis")[0]]
    assert gigabytes == pytest.approx((record + content + beyond + key) / 100, rel=0.01)
