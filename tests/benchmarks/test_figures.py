"""The arithmetic of what is published: an error here would hide behind plausible figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import BenchmarkError
from benchmarks.beside import figures_beside
from benchmarks.harness import StealMeter, in_pairs
from benchmarks.load.side import Slot
from benchmarks.load.through_faults import Arrived, again, late, twice
from benchmarks.load.traffic import Arrival, lateness
from benchmarks.measures.controls_waiting import INTERVAL, least_sent
from benchmarks.measures.footprint import is_request
from benchmarks.measures.growth import Growth
from benchmarks.measures.peers import figures_of
from benchmarks.measures.steady import BEFORE, Phase
from benchmarks.measures.targets import _seconds
from benchmarks.results import Pair, paired, percentile, single
from benchmarks.slots import Kind, starts_of
from tests.benchmarks.samples import result

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


def test_limit_and_value_are_measured_in_turn_until_the_ratio_is_sure() -> None:
    calls: list[str] = []

    def measure(what: str, value: float) -> float:
        calls.append(what)
        return value

    pairs = in_pairs("x", 3, lambda: measure("limit", 4), lambda: measure("ours", 2), swap=True)
    assert calls == ["limit", "ours", "ours", "limit", "limit", "ours"]
    assert [(pair.value, pair.limit) for pair in pairs] == [(2, 4)] * 3
    for ratios, count in (([1.0, 1.01, 0.99, 9.0], 3), ([1.0, 1.06, 0.98, 1.0, 9.0], 4), ([1.0, 1.2, 0.9, 1.0], 4)):
        left = iter(ratios)
        assert len(in_pairs("x", 4, lambda: 1.0, lambda: next(left), least=3)) == count  # noqa: B023
    assert starts_of(Kind("few", 2, Slot(10, 500)), 2, 1_000) == [[1_000, 2_500], [1_500, 2_000]]


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


def test_the_smallest_share_is_that_of_one_owner_in_one_interval() -> None:
    sent = [(FIRST, 0), (FIRST + 1, 0), (FIRST + INTERVAL, 0), (FIRST + INTERVAL - 1, 1)]
    assert least_sent(sent, [{0}, {1}], [FIRST]) == 1
    assert least_sent(sent, [{0}, {1}], [FIRST, FIRST + INTERVAL]) == 0
    assert least_sent(sent, [{0, 1}], [FIRST, FIRST + 1]) == 3


def test_another_checkout_or_product_is_compared_by_what_both_can() -> None:
    def found(cost: float, early: float) -> Any:
        return result("steady", [single("cost", "µs", [cost]), single("early", "messages", [early])])

    cost, early = figures_beside([found(50, 2), found(60, 0), found(10, 0)], [found(100, 0)] * 3)
    assert (cost.value, cost.limit, cost.ratio) == (50, 100, 0.5)
    assert early.line().startswith("early, 0 and 0 and 0 there: ")
    ours = {"one by one": 4.0, "lateness p50": 1.0, "CPU": 100.0, "early": 0.0}
    other = {"one by one": 5.0, "lateness p50": -300.0, "CPU": 50.0, "early": 0.7}
    figures = list(figures_of([{"delayq": ours, "asynq": other}]))
    assert [figure.name for figure in figures] == ["one by one, beside asynq", "CPU, beside asynq"]  # it was early


def test_what_other_programs_print_is_read_and_their_failures_count(tmp_path: Path) -> None:
    assert _seconds("warning: 3\n12.5\nOSError: [Errno 9] Bad file descriptor\n") == 12.5
    with pytest.raises(BenchmarkError, match="no broker"):
        _seconds("no broker")
    monitor = {
        b'1700000000.000001 [0 127.0.0.1:40000] "EVALSHA" "aa" "0"': True,
        b'1700000000.000002 [0 lua] "HGET" "delayq:{0}:state" "x] lua"': False,  # a call of a script is no request
        b'1700000000.000003 [0 127.0.0.1:40000] "SET" "a lua]" "b"': True,
    }
    assert {line: is_request(line) for line in monitor} == monitor
    counts = tmp_path / "stat"
    counts.write_text("cpu  1000 20 30 4000 50 6 7 100 0 0\n")
    meter = StealMeter(counts)
    counts.write_text("cpu  1300 20 30 4000 50 6 7 200 0 0\n")
    assert meter.share() == 0.25
    growth = Growth(few=[{"server": 2.0, "worker": 2.0}], many=[{"server": 4.0, "worker": 2.0}])
    assert growth.grown() == 1.5
