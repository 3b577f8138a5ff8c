"""What a soak draws, and its options."""

from __future__ import annotations

import pytest

from tests.chaos.faults import KINDS
from tests.soak.options import draw, options_of, parse
from tests.soak.report import LONG_ENOUGH
from tests.support.service import ROOT

COUNTS = {
    "workers": 2, "apis": 2, "redis": 1, "target": 1, "zookeepers": 1,
    "worker-redis": 2, "api-redis": 2, "worker-zookeeper": 2, "worker-target": 2,
}  # fmt: skip


def test_there_is_a_fault_a_minute_and_restarts_leave_the_second_half_alone() -> None:
    for seed in range(50):
        faults = draw(seed, 600, 60, COUNTS)
        assert [fault.at for fault in faults] == [30 + 60 * number for number in range(10)]
        first, second = faults[:5], faults[5:]
        assert {fault.kind.partition("-")[0] for fault in first} == {"kill", "stop"}
        assert not {"kill", "stop"} & {fault.kind.partition("-")[0] for fault in second}
        assert len({fault.kind for fault in faults}) == 10
        assert all(0 <= fault.victim < COUNTS[KINDS[fault.kind].victims] for fault in faults)
        assert all(KINDS[fault.kind].shortest <= fault.seconds <= KINDS[fault.kind].longest for fault in faults)


def test_a_seed_draws_the_same_again() -> None:
    assert draw(7, 600, 60, COUNTS) == draw(7, 600, 60, COUNTS) != draw(8, 600, 60, COUNTS)


def test_without_a_zookeeper_there_is_one_worker_and_no_fault_of_what_is_not_there() -> None:
    options = options_of(parse(["--minutes", "30", "--seed", "1"]), zookeeper=False)
    assert (options.nodes, options.zookeepers) == (1, 0)
    assert options.aimed is not None
    assert not [fault for fault in options.aimed if "zookeeper" in fault.kind]


def test_ten_minutes_are_the_default_and_long_enough() -> None:
    options = options_of(parse([]), zookeeper=True)
    assert (options.minutes, options.rate, len(options.aimed or ())) == (10, 1_000, 10)
    assert options.seconds >= LONG_ENOUGH
    assert options.by_client


@pytest.mark.parametrize("words", [["--minutes", "0"], ["--rate", "0"], ["--out", str(ROOT)]])
def test_a_wrong_command_line_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
