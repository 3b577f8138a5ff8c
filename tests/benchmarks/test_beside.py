"""A benchmark of this checkout beside another one's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as commandline
from benchmarks import beside
from benchmarks.errors import BenchmarkError
from benchmarks.results import ROOT, Pair, Result, paired, save, single
from tests.benchmarks.samples import result


def found(cost: float, ratio: float) -> Result:
    """What a run of steady finds."""
    figures = [
        single("cost", "µs", [cost], parts=[{"worker": cost / 2}]),
        paired("rate", "/s", [Pair(1_000 * ratio, 1_000)]),
        single("early", "messages", [0]),
    ]
    return result("steady", figures, quick=True)


def test_medians_of_what_both_have_found_are_set_side_by_side() -> None:
    here, there = [found(50, 0.9), found(60, 0.8), found(10, 0.7)], [found(100, 0.6), found(100, 0.4), found(100, 0.7)]
    there = [result("steady", [*one.figures, single("more", "ms", [1])]) for one in there]
    told = {figure.name: figure for figure in beside.figures_beside(here, there)}
    assert told.keys() == {"cost", "… worker", "rate"}
    assert (told["cost"].value, told["cost"].limit, told["cost"].ratio) == (50, 100, 0.5)
    assert told["rate"].runs == [pytest.approx(1.5), 2.0, 1.0]
    assert told["rate"].unit == "× its limit"


def test_what_was_zero_there_and_is_not_here_is_told() -> None:
    worse = result("steady", [single("early", "messages", [2])])
    (figure,) = beside.figures_beside([worse, worse], [found(1, 1), found(1, 1)])
    assert figure.line() == "early, 0 and 0 there: 2 messages"


def test_both_checkouts_run_in_turns_each_by_its_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    ran: list[Path] = []

    def run(program: str, checkout: Path, name: str, quick: bool) -> Result:
        assert (name, quick) == ("steady", True)
        ran.append(checkout)
        return found(100 if checkout == tmp_path else 25, 1)

    monkeypatch.setattr(beside, "_run", run)
    assert commandline.main(["steady", "--quick", "--beside", str(tmp_path), "--rounds", "2"]) == 0
    assert ran == [tmp_path, ROOT, ROOT, tmp_path]
    assert "cost: 25 µs · limit 100 · ratio 0.25" in capsys.readouterr().out


def test_a_run_in_another_checkout_is_read_from_its_file(tmp_path: Path) -> None:
    save(tmp_path / "sample.json", [found(1, 1)])
    (tmp_path / "benchmarks.py").write_text(
        "import shutil, sys\nassert sys.argv[1:3] == ['steady', '--json'] and sys.argv[4:] == ['--quick']\n"
        "shutil.copy('sample.json', sys.argv[3])\n"
    )

    assert beside._run(sys.executable, tmp_path, "steady", True) == found(1, 1)


def test_a_folder_without_a_venv_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"no checkout with a \.venv"):
        beside.beside("steady", tmp_path, 1, quick=True)


@pytest.mark.parametrize("more", [["--json", "x"], ["--redis-url", "redis://h"], ["--rounds", "0"]])
def test_it_goes_with_one_benchmark_on_servers_of_its_own(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commandline.main(["drain", "--beside", ".", *more])
    assert ended.value.code == 2
    assert "--beside goes with one benchmark" in capsys.readouterr().err
