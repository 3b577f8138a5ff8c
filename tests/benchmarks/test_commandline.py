"""The command line: bad use ends with 2, a missed goal does not."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as commandline
from benchmarks import harness, report
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale
from benchmarks.results import ALONE, NAMES, SECONDS, load, single
from delayq.errors import MissingExtra
from testbed.errors import ServerMissing
from tests.benchmarks.samples import ENVIRONMENT


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Benchmarks that take no time and miss their goals; the fixture's value lists what was rendered."""
    rendered: list[str] = []
    figures = [single("figure", "ms", [2.0], goal=1)]
    for name in (*NAMES, *ALONE):
        module = importlib.import_module(f"benchmarks.measures.{name}")
        monkeypatch.setattr(module, "run", lambda scale: (figures, {}))
    monkeypatch.setattr(commandline, "environment", lambda url, feeder: ENVIRONMENT)
    monkeypatch.setattr(commandline, "commit", lambda: "none")

    def render(results: Any) -> Path:
        rendered.append("page")
        return Path("page")

    monkeypatch.setattr(report, "render", render)

    class NoServer:
        url = "redis://nowhere"

        def __enter__(self) -> NoServer:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(commandline, "server_for", lambda scale: NoServer())
    return rendered


@pytest.mark.parametrize("arguments", [
        [], ["nonsense"], ["idle", "--fast"], ["idle", "memory"], ["idle", "--redis-url", "redis://h"],
        ["all", "--redis-url", "redis://h"], ["idle", "--anew"],
    ],
)  # fmt: skip
def test_bad_use_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commandline.main(arguments)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_a_missed_goal_is_told_and_no_failure(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(["idle", "--json", str(tmp_path / "idle.json")]) == 0
    assert "figure: 2 ms · goal ≤ 1 ms · missed" in capsys.readouterr().out
    assert [one.name for one in load(tmp_path / "idle.json")] == ["idle"]
    assert measured == []


def test_all_in_full_renders_the_page(measured: list[str], tmp_path: Path) -> None:
    assert commandline.main(["all", "--json", str(tmp_path / "all.json")]) == 0
    assert tuple(one.name for one in load(tmp_path / "all.json")) == NAMES
    assert measured == ["page"]


@pytest.mark.parametrize("name", ALONE)
def test_what_takes_too_long_for_all_is_measured_by_itself(measured: list[str], name: str, tmp_path: Path) -> None:
    assert commandline.main([name, "--json", str(tmp_path / "one.json")]) == 0
    assert [one.name for one in load(tmp_path / "one.json")] == [name]
    assert name not in NAMES


def test_all_of_a_quick_run_says_so_and_renders_nothing(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(["all", "--quick", "--json", str(tmp_path / "all.json")]) == 0
    assert "schedule, quick" in capsys.readouterr().out
    assert all(one.quick for one in load(tmp_path / "all.json"))
    assert measured == []


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    def fails(scale: Any) -> Any:
        raise error

    monkeypatch.setattr(importlib.import_module(f"benchmarks.measures.{name}"), "run", fails)


@pytest.mark.parametrize(
    "error", [BenchmarkError("no worker\nits log"), ServerMissing("no worker"), KeyError("no worker")]
)
def test_all_goes_on_after_a_failure_and_says_so_in_the_end(
    measured: list[str],
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(monkeypatch, "drain", error)
    assert commandline.main(["all", "--json", str(tmp_path / "all.json")]) == 1
    assert [one.name for one in load(tmp_path / "all.json")] == [name for name in NAMES if name != "drain"]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"benchmarks: 1 of {len(NAMES)} failed: drain: ")
    assert "no worker" in last
    assert measured == []


def test_what_was_measured_of_this_commit_is_left_out(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commandline, "commit", lambda: ENVIRONMENT.commit)
    whole = ["all", "--json", str(tmp_path / "all.json")]
    with monkeypatch.context() as once:
        failing(once, "drain", BenchmarkError("no worker"))
        assert commandline.main(whole) == 1
    for name in set(NAMES) - {"drain"}:
        failing(monkeypatch, name, BenchmarkError("again"))
    assert commandline.main(whole) == 0
    assert [one.name for one in load(tmp_path / "all.json")] == list(NAMES)
    assert measured == ["page"]
    assert "measured before, of this commit: schedule, http" in capsys.readouterr().err
    assert commandline.main([*whole, "--anew"]) == 1


@pytest.mark.parametrize("here", ["another", f"{ENVIRONMENT.commit}-changed"])
def test_what_was_measured_of_another_commit_is_measured_anew(
    measured: list[str], here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ["all", "--json", str(tmp_path / "all.json")]
    assert commandline.main(whole) == 0
    monkeypatch.setattr(commandline, "commit", lambda: here)
    failing(monkeypatch, "drain", BenchmarkError("anew"))
    assert commandline.main(whole) == 1


def test_all_says_how_long_it_will_take(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(["all", "--json", str(tmp_path / "all.json")]) == 0
    said = capsys.readouterr().err
    assert (
        f"about {sum(SECONDS.values()) / 60:.0f} min on two quiet cores: schedule {SECONDS['schedule']} s, http" in said
    )
    assert f"{len(NAMES)} of {len(NAMES)}, about {SECONDS[NAMES[-1]] / 60:.0f} min to go" in said


def test_a_folder_without_room_for_servers_is_told_of(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(harness, "ROOM", 2**80)
    assert commandline.main(["idle"]) == 0
    assert "GiB left, where servers keep their files" in capsys.readouterr().err
    monkeypatch.setattr(harness, "ROOM", 0)
    assert commandline.main(["idle"]) == 0
    assert "GiB left" not in capsys.readouterr().err


@pytest.mark.parametrize(("one", "five", "told"), [(0.1, 2.7, True), (1.2, 0.3, True), (0.4, 0.5, False)])
def test_a_machine_that_is_or_was_busy_is_told_of(
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one: float,
    five: float,
    told: bool,
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (one, five, 0.0))
    assert commandline.main(["idle"]) == 0
    said = f"the machine is or was busy (load average {one}, over five minutes {five}): ratios will not mean much"
    assert (said in capsys.readouterr().err) == told


def test_all_takes_no_more_than_an_hour() -> None:
    assert sum(SECONDS.values()) <= 3_600


@pytest.mark.parametrize(
    "error", [ServerMissing("a ZooKeeper server needs Java 11"), MissingExtra("the embedded Valkey", "embedded")]
)
def test_what_this_machine_lacks_is_one_sentence_and_2(
    measured: list[str], error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, "failover", error)
    assert commandline.main(["failover", "--quick"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"benchmarks: {error}"


def test_a_redis_of_the_callers_own_reaches_the_benchmark(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[Scale] = []

    def run(scale: Scale) -> Any:
        scales.append(scale)
        return [], {}

    monkeypatch.setattr(importlib.import_module("benchmarks.measures.drain"), "run", run)
    arguments = ["drain", "--redis-url", "redis+cluster://h:1", "--json", str(tmp_path / "drain.json")]
    assert commandline.main(arguments) == 0
    assert [scale.redis_url for scale in scales] == ["redis+cluster://h:1"]
    assert [one.elsewhere for one in load(tmp_path / "drain.json")] == [True]
