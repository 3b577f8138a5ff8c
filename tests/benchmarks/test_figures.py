"""The arithmetic: medians of pairs, goals, percentiles, lateness."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, in_pairs
from benchmarks.load.consumer import Arrival
from benchmarks.measures.growth import Growth
from benchmarks.measures.idle import is_request
from benchmarks.measures.lateness import highest, lateness
from benchmarks.measures.targets import _seconds
from benchmarks.results import Figure, Pair, load, paired, percentile, save, single
from tests.benchmarks.samples import result


def test_the_ratio_is_the_median_of_the_pairs_ratios() -> None:
    figure = paired("drain", "messages/s", [Pair(90, 100), Pair(10, 20), Pair(80, 100)], goal=0.9)
    assert figure.ratio == 0.8
    assert (figure.value, figure.limit) == (80, 100)
    assert figure.runs == [0.9, 0.5, 0.8]


def test_limit_and_ours_are_measured_in_turn() -> None:
    calls: list[str] = []

    def measure(what: str, value: float) -> float:
        calls.append(what)
        return value

    pairs = in_pairs("x", 2, lambda: measure("limit", 4), lambda: measure("ours", 2))
    assert calls == ["limit", "ours", "limit", "ours"]
    assert [pair.ratio for pair in pairs] == [0.5, 0.5]

    calls.clear()
    swapped = in_pairs("x", 3, lambda: measure("limit", 4), lambda: measure("ours", 2), swap=True)
    assert calls == ["limit", "ours", "ours", "limit", "limit", "ours"]
    assert [(pair.value, pair.limit) for pair in swapped] == [(2, 4)] * 3


@pytest.mark.parametrize(
    ("ratios", "count"),
    [
        ([1.0, 1.01, 0.99, 1.0, 1.0, 1.0], 3),
        ([1.0, 1.2, 0.9, 1.0, 1.1, 0.8], 6),
        ([1.0, 1.06, 0.98, 1.0, 1.01, 1.0], 4),
    ],
)
def test_pairs_are_measured_until_their_ratio_is_sure_or_there_are_enough(ratios: list[float], count: int) -> None:
    left = iter(ratios)
    pairs = in_pairs("x", 6, lambda: 1.0, lambda: next(left), least=3)
    assert [pair.ratio for pair in pairs] == ratios[:count]


@pytest.mark.parametrize(
    ("goal", "at_most", "reached"),
    [(0.9, False, True), (0.91, False, False), (0.9, True, True), (0.89, True, False), (None, False, None)],
)
def test_a_goal_for_a_ratio_is_a_least_or_a_most(goal: float | None, at_most: bool, reached: bool | None) -> None:
    figure = paired("x", "", [Pair(9, 10)], goal=goal, at_most=at_most)
    assert figure.reached is reached


def test_without_a_limit_the_goal_is_for_the_value() -> None:
    late = single("p99", "ms", [4.0, 5.0, 9.0], goal=5)
    assert late.reached
    assert late.line() == "p99: 5 ms · goal ≤ 5 ms · reached"


def test_a_line_names_figure_limit_ratio_goal_and_verdict() -> None:
    figure = paired("plain", "messages/s", [Pair(150_000, 200_000)], goal=0.9)
    expected = "plain: 150,000 messages/s · limit 200,000 · ratio 0.75 · goal ≥ 0.9 · missed"
    assert figure.line() == expected


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_by_nearest_rank(percent: float, expected: float) -> None:
    assert percentile(list(range(1, 11)), percent) == expected


def test_lateness_is_told_for_consumer_and_entry_and_counts_what_came_early() -> None:
    some = [
        Arrival(due=1000, arrived=1_000_400, entry=1000),
        Arrival(due=1000, arrived=1_002_000, entry=1001),
        Arrival(due=1000, arrived=999_999, entry=999),
    ]
    found = lateness(some)
    assert found.consumer["p50"] == 0.4
    assert found.consumer["max"] == 2.0
    assert found.entry["max"] == 1
    assert (found.early, found.count) == (1, 3)


def test_the_highest_rate_is_the_last_one_in_time_and_each_has_two_tries() -> None:
    tried: list[int] = []

    def p99(rate: int) -> float:
        tried.append(rate)
        if rate > 7_000:
            raise BenchmarkError("the consumer did not see all")
        return 50.0 if tried == [5_000, 6_250] else rate / 1_000

    figure = highest(p99)
    assert tried == [5_000, 6_250, 6_250, 7_812, 7_812]
    assert (figure.value, figure.goal_text, figure.reached) == (6_250, "≥ 10000 messages/s", False)
    assert figure.parts == {"p99 at 5,000/s": 5.0, "p99 at 6,250/s": 6.25}
    assert highest(lambda rate: 11.0).value == 0


def test_no_lateness_is_told_of_no_messages() -> None:
    with pytest.raises(BenchmarkError):
        lateness([])


def test_growth_is_that_of_all_processes_or_of_one() -> None:
    growth = Growth(few=[{"server": 2.0, "worker": 2.0}], many=[{"server": 4.0, "worker": 2.0}])
    assert growth.grown() == 1.5
    assert growth.grown("server") == 2


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (b'1700000000.000001 [0 127.0.0.1:40000] "EVALSHA" "aa" "0"', True),
        (b'1700000000.000002 [0 lua] "HGET" "delayq:{0}:state" "x] lua"', False),
        (b'1700000000.000003 [0 127.0.0.1:40000] "SET" "a lua]" "b"', True),
    ],
)
def test_what_a_script_calls_is_no_request(line: bytes, counts: bool) -> None:
    assert is_request(line) is counts


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = [result("schedule", [Figure(name="plain", value=1, unit="messages/s", goal=0.5)])]
    save(tmp_path / "new" / "results.json", results)
    assert load(tmp_path / "new" / "results.json") == results


def test_a_quick_scale_is_smaller_and_runs_once() -> None:
    assert (Scale(True).messages, Scale(True).runs) == (100_000, 1)
    assert (Scale(False).messages, Scale(False).runs) == (1_000_000, 3)


def test_what_a_client_took_is_found_although_it_complains_behind_it() -> None:
    assert _seconds("warning: 3\n12.5\nOSError: [Errno 9] Bad file descriptor\n") == 12.5
    with pytest.raises(BenchmarkError, match="says:\nno broker"):
        _seconds("no broker")
