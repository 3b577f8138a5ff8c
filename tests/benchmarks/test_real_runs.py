"""Small runs against a real server: they measure, whatever the figures are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale
from benchmarks.load import feeder
from benchmarks.load.backlog import in_time
from benchmarks.load.messages import DAY, QUEUES, make, spread
from benchmarks.measures import access, console, controls, controls_audit, controls_reading, drain, memory, schedule
from benchmarks.results import LEFT_OUT
from benchmarks.running import limit
from benchmarks.running.processes import connect, server
from delayq.store.keys import queue_keys

pytestmark = pytest.mark.long

FIRST = 1_800_000_000_000
FEW = 2_000


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "messages", FEW)
    # They have to be scheduled before they fall due, and on a busy machine that may take seconds.
    monkeypatch.setattr(drain, "in_time", partial(in_time, spare=5_000))


def test_schedule_measures_both_kinds_of_messages() -> None:
    figures, details = schedule.run(Scale(True))
    assert [figure.goal for figure in figures][:2] == [0.9, 0.7]
    assert all(figure.ratio and figure.ratio > 0 for figure in figures)
    assert schedule.ONE in [figure.name for figure in figures if figure.at_most]
    assert details["plain, CPU µs a message"][0].keys() == {"client", "server"}


def test_drain_measures_beside_two_limits_and_on_jemalloc_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scale, "runs", 0)  # one round
    monkeypatch.setattr(drain, "VARIANTS", drain.VARIANTS[:1])
    figures, details = drain.run(Scale(True))
    names = [variant.name for variant in drain.VARIANTS]
    if drain.JEMALLOC.name not in details.get(LEFT_OUT, {}):
        names.append(drain.JEMALLOC.name)
    assert [figure.name for figure in figures[::2]] == names
    assert [figure.name for figure in figures[1::2]] == [f"{name}, beside batches of 200" for name in names]
    assert all(figure.ratio and figure.ratio > 0 for figure in figures)


def test_memory_measures_messages_and_keys() -> None:
    figures, _ = memory.run(Scale(True))
    assert [figure.goal for figure in figures][:2] == [185, 125]
    assert all(figure.value > 0 for figure in figures)


def test_access_measures_beside_no_keys_and_beside_slow_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SOCKETS", 20)
    monkeypatch.setattr(access, "CLIENTS", 30)
    monkeypatch.setattr(access, "PAIRED", 1.0)
    figures, details = access.run(Scale(True))
    assert [(figure.goal, figure.at_most) for figure in figures] == [(0.95, False), (20, True)]
    assert figures[0].ratio and figures[0].ratio > 0
    (found,) = details["p99 of other requests, ms"]
    assert found["sockets"] >= 19


@pytest.mark.parametrize("write", [limit.write_drain, limit.write_batches])
def test_the_socket_feeder_does_all_that_a_limit_asks_for(write: Callable[..., int], tmp_path: Path) -> None:
    messages = list(make(FEW, spread(FIRST, DAY), keys=1))
    placed = limit.write_schedule(tmp_path / "load", messages)
    replies = write(tmp_path / "drain", messages, placed)
    with server() as running, connect(running.url) as connection:
        feeder.feed(running.port, tmp_path / "load", 3 * FEW)
        assert sum(connection.hlen(queue_keys(queue).pool) for queue in range(QUEUES)) == FEW
        feeder.feed(running.port, tmp_path / "drain", replies)
        for keys in map(queue_keys, range(QUEUES)):
            assert not connection.exists(keys.index, keys.queue, keys.pool)
        assert sum(connection.xlen(topic) for topic in {message.topic for message in messages}) == FEW


def test_controls_measure_a_part_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls_reading, "APART", 0)
    monkeypatch.setattr(controls_audit, "MESSAGES", FEW)
    figures, _ = controls.run(Scale(True, part="reading", pending=FEW))
    assert [figure.name for figure in figures] == [
        f"GET {path}, p99 with 2,000 messages pending" for path in controls_reading.PATHS
    ]
    figures, _ = controls.run(Scale(True, part="audit"))
    assert [figure.goal for figure in figures] == [0.85, 1.18]
    with pytest.raises(BenchmarkError, match="the parts of controls are"):
        controls.run(Scale(True, part="none"))


def test_console_measures_pages_where_there_is_a_browser_and_tabs_and_files_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "MESSAGES", FEW)
    monkeypatch.setattr(console, "SECONDS", 2.0)
    figures, details = console.run(Scale(True))
    assert [figure.goal for figure in figures][-3:] == [2, 20, 60]
    assert len(figures) == (3 if LEFT_OUT in details else 7)
