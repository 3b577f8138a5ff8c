"""A soak's verdict: what grows is found, what only goes up and down is not."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reliability.chaos.checker import Verdict
from reliability.chaos.history import FAULTS, FORWARDS
from reliability.chaos.options import Options
from reliability.soak.flatness import LEAST, WARM_UP, judge, slope
from reliability.soak.report import LONG_ENOUGH, Report, make
from reliability.soak.sampling import EVERY, MIB, Sample, look

#: Of a run at 1,000 messages a second, of which a worker has a half.
RATE = 500
SECONDS = 600
Change = Callable[[Sample], Sample]


def samples(*changes: Change, name: str = "w0", pid: int = 7, since: float = 0, until: float = SECONDS) -> list[Sample]:
    """A process that starts with 60 MiB, warms up to 75, and goes up and down by some; with these changes."""
    dice = random.Random(f"{name} {pid}")
    made = []
    for turn in range(int((until - since) / EVERY)):
        age = turn * EVERY
        rss = 60 + 15 * min(1, age / WARM_UP) + dice.uniform(-1.5, 1.5)
        one = Sample(since + age, name, pid, rss, rss - 9, 30 + dice.randint(-2, 2), 12)
        for change in changes:
            one = change(one)
        made.append(one)
    return made


def leak(measure: str, a_second: float) -> Change:
    """The measure grows by so much a second."""

    def change(one: Sample) -> Sample:
        grown = getattr(one, measure) + a_second * one.at
        return msgspec.structs.replace(one, **{measure: grown if measure == "rss" else int(grown)})

    return change


def growing(found: list[Sample]) -> list[str]:
    return [one.measure for one in judge(found)[0] if not one.flat]


def test_what_warms_up_and_then_goes_up_and_down_is_flat() -> None:
    assert growing(samples()) == []


@pytest.mark.parametrize("size", [64, 200])
def test_some_bytes_kept_of_each_message_are_found(size: int) -> None:
    assert growing(samples(leak("rss", size * RATE / MIB))) == ["rss"]


def test_bytes_kept_of_each_message_are_found_though_a_fault_restarted_the_process_in_the_middle() -> None:
    one_a_message = leak("rss", 64 * RATE / MIB)
    found = samples(one_a_message, until=270) + samples(one_a_message, pid=8, since=271)
    assert growing(found) == ["rss"]


@pytest.mark.parametrize(("measure", "a_second"), [("fds", 1 / 60), ("threads", 1 / 60)])
def test_one_left_open_by_each_fault_is_found(measure: str, a_second: float) -> None:
    assert growing(samples(leak(measure, a_second))) == [measure]


def test_what_redis_says_of_its_data_is_judged_by_itself() -> None:
    found = [msgspec.structs.replace(one, used=20 + one.at * 0.02) for one in samples(leak("rss", 0.02), name="redis")]
    found[50] = msgspec.structs.replace(found[50], used=None)  # it was paused
    assert growing(found) == ["used"]  # and its resident memory may grow by more
    found = samples(leak("rss", 0.5), name="redis")
    assert growing(found) == ["rss"]
    assert "rss" not in [one.measure for one in judge(found, embedded=True)[0]]


def test_a_peak_while_a_fault_lasts_is_no_growth() -> None:
    peaks = (150, 210, 330, 560)

    def change(one: Sample) -> Sample:
        high = any(at <= one.at < at + 15 for at in peaks)
        return msgspec.structs.replace(one, rss=one.rss + 60 * high, fds=one.fds + 40 * high)

    assert growing(samples(change)) == []


@pytest.mark.parametrize("at", [150, 300, 345, 500])
def test_what_goes_up_once_and_stays_is_no_growth(at: int) -> None:
    """A worker that had to stand in for another keeps the connections that it made."""

    def change(one: Sample) -> Sample:
        up = one.at >= at
        return msgspec.structs.replace(one, rss=one.rss + 8 * up, fds=one.fds + 8 * up, threads=one.threads + 2 * up)

    assert growing(samples(change)) == []


def test_a_restarted_process_begins_anew_and_its_longest_life_is_judged() -> None:
    trends, unjudged = judge(samples(until=30) + samples(pid=8, since=33))
    assert {trend.flat for trend in trends} == {True}
    assert all(trend.seconds > SECONDS - 33 - WARM_UP - 2 * EVERY for trend in trends)
    assert not unjudged


def test_of_a_short_life_nothing_is_said() -> None:
    trends, unjudged = judge(samples(until=WARM_UP + LEAST - EVERY))
    assert (trends, unjudged) == ([], ["w0"])


def test_the_slope_is_that_of_a_line_whatever_single_points_say() -> None:
    points = [(float(x), 3.0 * x) for x in range(30)]
    points[7], points[20] = (7.0, 1e6), (20.0, -1e6)
    assert slope(points) == pytest.approx(3, rel=0.05)
    assert slope(points[:1]) == 0


def report(folder: Path, found: list[Sample], *, seconds: float = SECONDS, lost: int = 0) -> Report:
    (folder / FAULTS).touch()
    (folder / FORWARDS).write_text('{"at": 1, "stream": "general.0", "of": [[105, "0", 100, 1], [109, "1", 100, 1]]}\n')
    verdict = Verdict(messages=1_000, forwarded=1_000, faults=3, lost=lost)
    return make(Options(minutes=seconds / 60, folder=folder), verdict, found)


def test_a_leak_a_lost_message_and_a_process_that_was_never_judged_are_each_wrong(tmp_path: Path) -> None:
    assert report(tmp_path, samples()).wrong == {}
    assert report(tmp_path, samples(leak("fds", 0.1))).wrong == {"grows": ["fds of w0"]}
    assert report(tmp_path, samples(), lost=2).wrong == {"lost": 2}
    assert report(tmp_path, samples(until=60)).wrong == {"nothing can be said of": ["w0"]}
    assert "nothing can be said of" in report(tmp_path, []).wrong


def test_a_short_run_says_that_it_judged_nothing(tmp_path: Path) -> None:
    short = report(tmp_path, samples(until=60), seconds=LONG_ENOUGH - 1)
    assert not short.wrong
    assert short.verdict == "verdict: guarantees kept, flatness not judged for all"
    assert "not judged, too short a life: w0" in short.table()


def test_the_table_tells_lateness_and_each_trend(tmp_path: Path) -> None:
    lines = report(tmp_path, samples(leak("fds", 0.1))).table().splitlines()
    assert lines[1].endswith("most 9")
    assert [line.split()[-1] for line in lines[3:]] == ["flat", "GROWS", "flat"]


def test_a_process_is_looked_at_while_it_is_there() -> None:
    seen = look(1.5, "this", os.getpid())
    assert seen is not None
    assert seen.rss > seen.pss > 0
    assert seen.fds > 2 and seen.threads >= 1
    assert look(1.5, "nobody", 2**22 + 1) is None
