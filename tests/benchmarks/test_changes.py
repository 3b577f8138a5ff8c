"""Two checkouts at the same time, each in slots of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from benchmarks import __main__ as commandline
from benchmarks import changes, slots
from benchmarks.changes import KINDS
from benchmarks.errors import BenchmarkError
from benchmarks.harness import now
from benchmarks.load import side
from benchmarks.load.side import Plan, Slot
from benchmarks.measures import controls_limits
from benchmarks.results import ROOT
from benchmarks.slots import Kind, Measured, Side, compared, in_slots, starts_of
from delayq import Client
from delayq.policies import Policy


def test_no_two_slots_are_at_the_same_time_and_who_was_last_is_first_then() -> None:
    there, here = starts_of(Kind("few", 4, Slot(10, 500)), 2, 1_000)
    assert (there, here) == ([1_000, 2_500, 3_000, 4_500], [1_500, 2_000, 3_500, 4_000])


def test_both_are_measured_in_rounds_of_new_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, list[str]]] = []

    def measure(kind: Kind, sides: Mapping[str, Side]) -> dict[str, Measured]:
        assert sides == {"there": Side("python", Path("there")), "here": Side(sys.executable, ROOT)}
        asked.append((kind.name, kind.slots, list(sides)))
        return {
            "here": [{"worker": 30.0, "Redis": 20.0, "rate": 300.0}, {"worker": 60.0, "Redis": 40.0, "rate": 300.0}],
            "there": [{"worker": 20.0, "Redis": 20.0, "rate": 200.0}, {"worker": 50.0, "Redis": 50.0, "rate": 200.0}],
        }

    monkeypatch.setattr(slots, "measure", measure)
    monkeypatch.setattr(changes, "python_of", lambda other: "python")
    kinds = KINDS[0], KINDS[-1]
    steady, cost, rate = changes.changes(Path("there"), 2, quick=True, kinds=kinds)
    assert asked == [
        (kind.name, -(-kind.slots // 4), names) for kind in kinds for names in (["there", "here"], ["here", "there"])
    ]
    assert (steady.value, steady.limit, steady.ratio, steady.reached) == (75, 70, 1.125, False)
    assert steady.parts == {"error": 0, "worker": 45, "Redis": 30, "its worker": 35, "its Redis": 35}
    assert (cost.name, cost.unit) == (KINDS[-1].name, "CPU µs a message")
    assert (rate.unit, rate.ratio, rate.reached) == ("messages/s", 1.5, True)


def test_the_error_is_that_by_which_rounds_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = iter([1.0, 1.2, 1.4, 1.2])

    def measure(kind: Kind, sides: Mapping[str, Side]) -> dict[str, Measured]:
        cost = next(costs)
        return {"here": [{"worker": cost, "Redis": cost}], "there": [{"worker": 1.0, "Redis": 1.0}]}

    monkeypatch.setattr(slots, "measure", measure)
    monkeypatch.setattr(changes, "python_of", lambda other: "python")
    (figure,) = changes.changes(Path("there"), 4, quick=False, kinds=KINDS[:1])
    assert figure.ratio == pytest.approx(1.2)
    assert figure.parts["error"] == pytest.approx(0.0816, abs=0.001)


def test_it_goes_with_another_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        commandline.main(["changes"])
    assert ended.value.code == 2
    assert "changes goes with --beside CHECKOUT" in capsys.readouterr().err


def test_a_folder_without_a_venv_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commandline.main(["changes", "--beside", str(tmp_path)]) == 1
    assert "is no checkout with a .venv" in capsys.readouterr().err


def test_a_backlog_is_drained_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "python_of", lambda other: sys.executable)
    monkeypatch.setattr(slots, "UP", 40_000)  # for a busy machine
    few = Kind("few", 2, Slot(500, drains=True))
    cost, rate = changes.changes(ROOT, 1, quick=False, kinds=(few,))
    assert len(cost.runs) == len(rate.runs) == 2
    assert cost.value > 0
    assert rate.value > 0


def test_a_backlog_that_stood_aside_comes_back_in_its_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "UP", 40_000)  # for a busy machine
    few = Kind("few", 2, Slot(500, drains=True, null=True))
    found = in_slots(
        few, {"drained": Side(policies=(Policy(name="p", match="*", rate=1e6),)), "held": Side(held=True)}, 1
    )
    assert [len(measured) for (measured,) in found.values()] == [2, 2]
    rate = compared("resumed", "messages/s", lambda slot: slot["later"], found["held"], found["drained"])
    assert rate.value > 0
    assert rate.limit


@pytest.fixture
def up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments of a plan count from when all is up, however long that takes on a busy machine."""
    schedule = side._schedule

    def later(plan: Plan, client: Client) -> None:
        plan.starts[:] = [int(now()) + 5_000 + start for start in plan.starts]
        schedule(plan, client)

    monkeypatch.setattr(side, "_schedule", later)


@pytest.mark.usefixtures("up_first")
def test_a_side_tells_of_each_slot_what_its_messages_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan([0, 400], Slot(50, 200))
    monkeypatch.setattr(sys, "argv", ["side", msgspec.json.encode(plan).decode()])
    side.main()
    found = msgspec.json.decode(capsys.readouterr().out, type=list[dict[str, float]])
    assert [one.keys() for one in found] == [{"worker", "Redis"}] * 2
    assert all(one["worker"] > 0 for one in found)


@pytest.mark.usefixtures("up_first")
@pytest.mark.parametrize(
    ("null", "policy"), [(False, controls_limits.FAR), (True, controls_limits.FAR), (True, controls_limits.MANY)]
)
def test_a_side_with_a_policy_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], null: bool, policy: Policy
) -> None:
    slot = Slot(50, 200, drains=True, null=null)
    plan = Plan([0], slot, policies=[msgspec.to_builtins(policy)])
    monkeypatch.setattr(sys, "argv", ["side", msgspec.json.encode(plan).decode()])
    side.main()
    (one,) = msgspec.json.decode(capsys.readouterr().out, type=list[dict[str, float]])
    assert one["rate"] > 0


def test_a_side_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "python_of", lambda other: sys.executable)
    monkeypatch.setattr(slots, "UP", -10_000)  # its time is over before it is up
    with pytest.raises(BenchmarkError, match="scheduling took longer than expected"):
        changes.changes(ROOT, 1, quick=False, kinds=(Kind("few", 1, Slot(1)),))
