"""docs/benchmarks.md comes from full runs of all benchmarks, and says what was reached and on what."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import report
from benchmarks.results import LEFT_OUT, STOLEN, load, save, single
from tests.benchmarks.samples import all_results


def test_the_page_has_figure_limit_ratio_goal_and_whether_it_was_reached(tmp_path: Path) -> None:
    page = report.render(all_results(), tmp_path).read_text()
    assert "| plain | 190,000 messages/s | 200,000 | 0.95 | 0.95 – 0.95 (3) | ≥ 0.9 | reached |" in page
    assert "| into streams | 80,000 messages/s | 160,000 | 0.50 |  | ≥ 1.1 | missed |" in page
    assert "7 of 8 goals are reached" in page
    assert "* missed: drain, into streams" in page


def test_the_page_names_machine_and_versions(tmp_path: Path) -> None:
    page = report.render(all_results(), tmp_path).read_text()
    for part in (
        "A processor, 2 cores, 8 GiB, Linux 6.1",
        "valkey 9.1.2, memory by libc",
        "redis-py 8.1.0",
        "0123456789ab",
    ):
        assert part in page


def test_the_page_tells_where_the_host_took_much_of_the_cpu(tmp_path: Path) -> None:
    first, second, *others = all_results()
    disturbed = [
        msgspec.structs.replace(first, details={STOLEN: 0.19}),
        msgspec.structs.replace(second, details={STOLEN: 0.02}),
    ]
    page = report.render([*disturbed, *others], tmp_path).read_text()
    assert page.count("of the CPU time to other machines") == 1
    assert "The host gave 19% of the CPU time" in page.split(f"## {first.name}\n")[1].split(f"## {second.name}\n")[0]


def test_every_plot_that_the_page_shows_is_there_and_comes_out_the_same_twice(tmp_path: Path) -> None:
    pages = [report.render(all_results(), tmp_path / name) for name in ("one", "two")]
    shown = [line.split("(")[1].rstrip(")") for line in pages[0].read_text().splitlines() if line[:2] == "!["]
    assert len(shown) == 5
    for plot in shown:
        assert (tmp_path / "one" / plot).read_bytes() == (tmp_path / "two" / plot).read_bytes()


def test_the_results_lie_beside_the_page(tmp_path: Path) -> None:
    report.render(all_results(), tmp_path)
    assert load(tmp_path / "benchmarks" / "results.json") == all_results()


def test_a_quick_run_is_never_rendered(tmp_path: Path) -> None:
    first, *others = all_results()
    quick = [msgspec.structs.replace(first, quick=True), *others]
    assert not report.publishable(quick)
    with pytest.raises(ValueError, match="full runs"):
        report.render(quick, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_a_redis_of_the_callers_own_is_never_rendered() -> None:
    first, *others = all_results()
    assert not report.publishable([msgspec.structs.replace(first, elsewhere=True), *others])


def test_a_missing_benchmark_is_not_rendered_over() -> None:
    assert not report.publishable(all_results()[1:])
    assert report.publishable(all_results())


def test_figures_of_several_commits_are_not_rendered_together(tmp_path: Path) -> None:
    first, *others = all_results()
    other = msgspec.structs.replace(first.environment, commit="fedcba987654")
    mixed = [msgspec.structs.replace(first, environment=other), *others]
    assert not report.publishable(mixed)
    with pytest.raises(ValueError, match="one commit"):
        report.render(mixed, tmp_path)


def test_what_this_machine_could_not_measure_is_told(tmp_path: Path) -> None:
    first, *others = all_results()
    short = msgspec.structs.replace(first, details={LEFT_OUT: {"on jemalloc": "there is no such server"}})
    page = report.render([short, *others], tmp_path).read_text()
    assert "Left out, on jemalloc: there is no such server" in page


def test_a_figures_parts_stand_with_its_name(tmp_path: Path) -> None:
    first, *others = all_results()
    figure = single("cost", "µs", [5.0], parts=[{"worker": 2, "Redis": 3}])
    page = report.render([msgspec.structs.replace(first, figures=[figure]), *others], tmp_path).read_text()
    assert "| cost (worker 2, Redis 3) | 5 µs |" in page


def test_figures_of_several_machines_are_told_apart(tmp_path: Path) -> None:
    first, *others = all_results()
    elsewhere = msgspec.structs.replace(first.environment, cpu="Another processor")
    page = report.render([msgspec.structs.replace(first, environment=elsewhere), *others], tmp_path).read_text()
    assert "Of schedule:\n\n" in page
    assert "Another processor" in page
    assert "A processor" in page


def test_files_of_several_runs_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rendered: list[str] = []
    monkeypatch.setattr(report, "render", lambda results: rendered.extend(one.name for one in results))
    save(tmp_path / "a.json", all_results()[4:])
    save(tmp_path / "b.json", all_results()[:4])
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    assert report.main() == 0
    assert rendered == [one.name for one in all_results()]
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "none.json")])
    assert report.main() == 2
    assert "none.json" in capsys.readouterr().err
