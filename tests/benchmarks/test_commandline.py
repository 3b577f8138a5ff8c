"""The command line: bad use ends with 2, a missed goal does not."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as commandline
from benchmarks import report
from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale
from benchmarks.results import NAMES, load, single
from delayq.errors import MissingExtra
from testbed.errors import ServerMissing
from tests.benchmarks.samples import ENVIRONMENT


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Benchmarks that take no time and miss their goals; the fixture's value lists what was rendered."""
    rendered: list[str] = []
    figures = [single("figure", "ms", [2.0], goal=1)]
    for name in NAMES:
        module = importlib.import_module(f"benchmarks.measures.{name}")
        monkeypatch.setattr(module, "run", lambda scale: (figures, {}))
    monkeypatch.setattr(commandline, "environment", lambda url, feeder: ENVIRONMENT)

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
        ["all", "--redis-url", "redis://h"],
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


def test_all_of_a_quick_run_says_so_and_renders_nothing(
    measured: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(["all", "--quick", "--json", str(tmp_path / "all.json")]) == 0
    assert "schedule, quick" in capsys.readouterr().out
    assert all(one.quick for one in load(tmp_path / "all.json"))
    assert measured == []


def test_what_was_measured_before_a_failure_is_kept(
    measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(scale: Any) -> Any:
        raise BenchmarkError("no worker")

    monkeypatch.setattr(importlib.import_module("benchmarks.measures.drain"), "run", fails)
    assert commandline.main(["all", "--json", str(tmp_path / "all.json")]) == 1
    assert [one.name for one in load(tmp_path / "all.json")] == ["schedule", "http", "access"]
    assert "no worker" in capsys.readouterr().err
    assert measured == []


@pytest.mark.parametrize(
    "error", [ServerMissing("a ZooKeeper server needs Java 11"), MissingExtra("the embedded Valkey", "embedded")]
)
def test_what_this_machine_lacks_is_one_sentence_and_2(
    measured: list[str], error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(scale: Any) -> Any:
        raise error

    monkeypatch.setattr(importlib.import_module("benchmarks.measures.failover"), "run", fails)
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
