"""The verdict of a soak: it finds every measure that grows, and takes nothing for growth that goes up and down."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from reliability.chaos.checker import Verdict
from reliability.chaos.history import FAULTS, FORWARDS
from reliability.chaos.options import Options
from reliability.soak.flatness import LEAST, WARM_UP, judge
from reliability.soak.report import LONG_ENOUGH, Report, make
from reliability.soak.sampling import EVERY, MIB, Sample

#: A run at 1,000 messages a second, of which a worker has a half.
RATE = 500
SECONDS = 600
Change = Callable[[Sample], Sample]


def samples(*changes: Change, name: str = "w0", pid: int = 7, since: float = 0, until: float = SECONDS) -> list[Sample]:
    """A process that starts with 60 MiB, warms up to 75, and then goes up and down, with these changes."""
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


def raised(when: Callable[[float], bool], rss: float, fds: int, threads: int = 0) -> Change:
    """These measures are higher while `when` holds."""

    def change(one: Sample) -> Sample:
        up = when(one.at)
        return msgspec.structs.replace(
            one, rss=one.rss + rss * up, fds=one.fds + fds * up, threads=one.threads + threads * up
        )

    return change


def growing(found: list[Sample]) -> list[str]:
    return [one.measure for one in judge(found)[0] if not one.flat]


SMALL = leak("rss", 64 * RATE / MIB)
GROWTH: dict[str, tuple[list[Sample], list[str]]] = {
    "a process that warms up": (samples(), []),
    "64 bytes of each message": (samples(SMALL), ["rss"]),
    "200 bytes of each message": (samples(leak("rss", 200 * RATE / MIB)), ["rss"]),
    "64 bytes of each message, and a restart": (samples(SMALL, until=270) + samples(SMALL, pid=8, since=271), ["rss"]),
    "a file left open by each fault": (samples(leak("fds", 1 / 60)), ["fds"]),
    "a thread left by each fault": (samples(leak("threads", 1 / 60)), ["threads"]),
    "peaks while faults last": (
        samples(raised(lambda at: any(peak <= at < peak + 15 for peak in (150, 210, 330, 560)), 60, 40)), [],
    ),
    # A worker that stands in for another one keeps the connections that it made.
    **{f"a step at {at} s": (samples(raised(lambda now, at=at: now >= at, 8, 8, 2)), []) for at in (150, 300, 345, 500)},  # type: ignore[misc]  # bound now
}  # fmt: skip


@pytest.mark.parametrize("name", GROWTH)
def test_growth_is_found_and_nothing_else(name: str) -> None:
    found, grows = GROWTH[name]
    assert growing(found) == grows


def test_the_data_of_redis_and_its_resident_memory_have_bounds_of_their_own() -> None:
    found = [msgspec.structs.replace(one, used=20 + one.at * 0.02) for one in samples(leak("rss", 0.02), name="redis")]
    found[50] = msgspec.structs.replace(found[50], used=None)  # it was paused
    assert growing(found) == ["used"]
    found = samples(leak("rss", 0.5), name="redis")
    assert growing(found) == ["rss"]
    assert "rss" not in [one.measure for one in judge(found, embedded=True)[0]]


def test_the_longest_life_of_a_process_is_judged_and_a_short_one_is_not() -> None:
    trends, unjudged = judge(samples(until=30) + samples(pid=8, since=33))
    assert {trend.flat for trend in trends} == {True}
    assert all(trend.seconds > SECONDS - 33 - WARM_UP - 2 * EVERY for trend in trends)
    assert not unjudged
    assert judge(samples(until=WARM_UP + LEAST - EVERY)) == ([], ["w0"])


def report(folder: Path, found: list[Sample], *, seconds: float = SECONDS, lost: int = 0) -> Report:
    (folder / FAULTS).touch()
    (folder / FORWARDS).write_text('{"at": 1, "stream": "general.0", "of": [[105, "0", 100, 1], [109, "1", 100, 1]]}\n')
    verdict = Verdict(messages=1_000, forwarded=1_000, faults=3, lost=lost)
    return make(Options(minutes=seconds / 60, folder=folder), verdict, found)


def test_the_report_fails_for_a_leak_a_lost_message_and_a_process_that_was_never_judged(tmp_path: Path) -> None:
    assert report(tmp_path, samples()).wrong == {}
    assert report(tmp_path, samples(leak("fds", 0.1))).wrong == {"grows": ["fds of w0"]}
    assert report(tmp_path, samples(), lost=2).wrong == {"lost": 2}
    assert report(tmp_path, samples(until=60)).wrong == {"no judgement is possible for": ["w0"]}
    assert "no judgement is possible for" in report(tmp_path, []).wrong
    assert not report(tmp_path, samples(until=60), seconds=LONG_ENOUGH - 1).wrong
