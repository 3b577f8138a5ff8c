"""Each benchmark runs: a quick run measures figures, whatever their values are."""

from __future__ import annotations

import pytest

from benchmarks import slots
from benchmarks.__main__ import measure
from benchmarks.harness import Scale
from benchmarks.load.side import Slot
from benchmarks.measures.controls import PARTS
from benchmarks.results import ALONE, NAMES
from benchmarks.slots import Kind, Side
from delayq.base.errors import ConfigError
from testbed.errors import ServerMissing

pytestmark = pytest.mark.release

RUNS = [*((name, "") for name in (*NAMES, *ALONE) if name != "controls"), *(("controls", part) for part in PARTS)]


@pytest.mark.parametrize(("name", "part"), RUNS)
def test_a_quick_run_measures(name: str, part: str) -> None:
    try:
        result = measure(name, Scale(quick=True, part=part))
    except (ConfigError, ServerMissing) as error:
        pytest.skip(str(error))
    assert result.figures
    assert all(figure.ratio is None or figure.ratio > 0 for figure in result.figures)


def test_two_sides_are_measured_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """`changes --beside` measures like this; here both sides are this checkout."""
    monkeypatch.setattr(slots, "SPARE", 30_000)  # ms to schedule on a busy machine
    found = slots.in_slots(Kind("few", 2, Slot(500, drains=True)), {"there": Side(), "here": Side()}, 1)
    assert all(slot["rate"] > 0 for rounds in found.values() for measured in rounds for slot in measured)
