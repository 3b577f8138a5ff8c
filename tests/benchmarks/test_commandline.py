"""The command line: bad use ends with 2, a missed goal is reported and is no failure."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import BenchmarkError, report
from benchmarks import __main__ as commandline
from benchmarks.harness import Scale
from benchmarks.results import NAMES, Figure, load, single
from testbed.errors import ServerMissing
from tests.benchmarks.samples import ENVIRONMENT


class Measures:
    """Stands in for the modules of the benchmarks: each takes no time, and misses its goal or fails."""

    def __init__(self) -> None:
        self.failing: dict[str, Exception] = {}
        self.rendered = 0

    def import_module(self, path: str) -> Any:
        name = path.rpartition(".")[2]

        def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
            if name in self.failing:
                raise self.failing[name]
            return [single("figure", "ms", [2.0], goal=1)], {}

        return SimpleNamespace(run=run)

    def render(self, results: object) -> Path:
        self.rendered += 1
        return Path("page")


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch) -> Measures:
    made = Measures()
    monkeypatch.setattr(commandline, "importlib", made)
    monkeypatch.setattr(commandline, "environment", lambda url: ENVIRONMENT)
    monkeypatch.setattr(commandline, "commit", lambda: ENVIRONMENT.commit)
    monkeypatch.setattr(commandline, "server_for", lambda scale: nullcontext(SimpleNamespace(url="redis://h")))
    monkeypatch.setattr(report, "render", made.render)
    return made


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "growth --fast",
        "growth memory",
        "growth --redis-url redis://h",
        "all --redis-url redis://h",
        "growth --part audit",
        "changes",
        "all --beside .",
        "drain --beside . --rounds 0",
    ],
)
def test_bad_use_ends_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commandline.main(line.split())
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_a_missed_goal_is_reported_and_is_no_failure(
    measures: Measures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commandline.main(["growth", "--json", str(tmp_path / "growth.json")]) == 0
    assert "figure: 2 ms · goal ≤ 1 ms · missed" in capsys.readouterr().out
    assert [one.name for one in load(tmp_path / "growth.json")] == ["growth"]
    measures.failing["growth"] = ServerMissing("it needs Java")
    assert commandline.main(["growth"]) == 2
    assert capsys.readouterr().err.endswith("benchmarks: it needs Java\n")


def test_all_goes_on_after_a_failure_and_measures_only_what_is_missing_the_next_time(
    measures: Measures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = ["all", "--json", str(tmp_path / "all.json")]
    measures.failing = {"drain": BenchmarkError("no worker\nits log"), "growth": KeyError("no worker")}
    assert commandline.main(whole) == 1
    assert [one.name for one in load(tmp_path / "all.json")] == [name for name in NAMES if name not in measures.failing]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"benchmarks: 2 of {len(NAMES)} failed: drain: no worker; growth: 'no worker'"
    assert measures.rendered == 0

    measures.failing = dict.fromkeys(set(NAMES) - measures.failing.keys(), BenchmarkError("measured again"))
    assert commandline.main(whole) == 0
    assert [one.name for one in load(tmp_path / "all.json")] == list(NAMES)
    assert measures.rendered == 1


def test_a_quick_run_of_all_is_marked_as_quick_and_never_rendered(measures: Measures, tmp_path: Path) -> None:
    assert commandline.main(["all", "--quick", "--json", str(tmp_path / "all.json")]) == 0
    assert all(one.quick for one in load(tmp_path / "all.json"))
    assert measures.rendered == 0
