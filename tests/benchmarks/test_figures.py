"""The arithmetic of what is published: an error here would hide behind plausible figures."""

from __future__ import annotations

import pytest

from benchmarks import BenchmarkError
from benchmarks.load.through_faults import Arrived, again, late, twice
from benchmarks.load.traffic import Arrival, lateness
from benchmarks.measures.steady import BEFORE, Phase
from benchmarks.results import Pair, paired, percentile, single

FIRST = 1_800_000_000_000


def test_a_ratio_is_the_median_of_the_pairs_ratios_and_its_goal_is_a_least_or_a_most() -> None:
    pairs = [Pair(90, 100), Pair(10, 20), Pair(80, 100)]
    drain = paired("drain", "/s", pairs, goal=0.8)
    assert (drain.ratio, drain.value, drain.limit, drain.runs) == (0.8, 80, 100, [0.9, 0.5, 0.8])
    goals = {(0.8, False): True, (0.81, False): False, (0.8, True): True, (0.79, True): False}
    assert {key: paired("x", "", pairs, goal=key[0], at_most=key[1]).reached for key in goals} == goals
    assert paired("x", "", pairs).reached is None
    assert drain.line() == "drain: 80 /s · limit 100 · ratio 0.80 · goal ≥ 0.8 · reached"
    late = single("p99", "ms", [4.0, 9.0, 5.0], goal=5, parts=[{"one": 1}, {"one": 2}])
    assert late.line() == "p99: 5 ms · goal ≤ 5 ms · reached (one 1.5)"


def test_lateness_counts_what_came_early_and_refuses_to_describe_nothing() -> None:
    ranks = {50: 5, 90: 9, 99: 10, 100: 10, 1: 1}  # nearest rank
    assert {percent: percentile(list(range(1, 11)), percent) for percent in ranks} == ranks
    arrivals = [(1_000_400, 1000), (1_002_000, 1001), (999_999, 999)]
    found = lateness([Arrival(due=1000, arrived=arrived, entry=entry) for arrived, entry in arrivals])
    assert (found.consumer["p50"], found.consumer["max"], found.entry["max"]) == (0.4, 2.0, 1)
    assert (found.early, found.count) == (1, 3)
    with pytest.raises(BenchmarkError):
        lateness([])


def test_a_fault_is_measured_by_the_first_arrival_of_what_fell_due_after_it() -> None:
    def arrived(id: str, due: float, at: float) -> Arrived:
        return Arrived(id, int(FIRST + due), FIRST + at)

    one, two = "a.0001", "b.0002"  # the suffix is the queue
    seen = [arrived(one, -1, 5), arrived(one, 10, 900), arrived(one, 500, 700), arrived(two, 0, 40)]
    assert again(seen, FIRST) == {1: 700.0, 2: 40.0}
    seen = [arrived(f"m{i}", 0, i) for i in range(100)] + [arrived("m5", 0, 5_000), arrived("out", 1_000, 9_000)]
    assert (late(seen, FIRST, FIRST + 1_000), twice(seen, FIRST, FIRST + 1_000)) == (98, 1)
    with pytest.raises(BenchmarkError):
        late(seen, FIRST + 5_000, FIRST + 6_000)
    phase = Phase(10, FIRST, FIRST + BEFORE + 1_000)
    assert phase.counted([FIRST, phase.first - 1, phase.first, phase.end - 1, phase.end]) == 2  # without the warm-up
