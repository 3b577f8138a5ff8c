"""The CPU time that a host gives to other machines is told beside figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__
from benchmarks.harness import Scale, StealMeter
from benchmarks.measures import drain

LINE = "cpu  {user} 20 30 4000 50 6 7 {stolen} 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


def test_it_is_the_part_of_what_was_asked_for(tmp_path: Path) -> None:
    counts = tmp_path / "stat"
    counts.write_text(LINE.format(user=1_000, stolen=100))
    meter = StealMeter(counts)
    assert meter.share() == 0
    counts.write_text(LINE.format(user=1_300, stolen=200))
    assert meter.share() == 0.25


def test_where_the_system_does_not_tell_nothing_is_stolen(tmp_path: Path) -> None:
    assert StealMeter(tmp_path / "none").share() == 0


@pytest.mark.parametrize(("share", "told"), [(0.029, False), (0.18, True)])
def test_much_of_it_is_told(
    share: float, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drain, "run", lambda scale: ([], {}))
    monkeypatch.setattr(StealMeter, "share", lambda meter: share)
    result = __main__.measure("drain", Scale(True))
    assert result.details == {"CPU time stolen by the host": share}
    assert ("gave 18% of the CPU time to other machines" in capsys.readouterr().out) is told
