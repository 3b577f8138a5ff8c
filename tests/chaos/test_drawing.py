"""What is drawn from a seed: the same again, and what the run is meant to have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.drawing import CLOSE, Change, draw_batch
from tests.chaos.faults import KINDS, draw_faults
from tests.chaos.options import Options, parse

COUNTS = {
    "workers": 3, "apis": 2, "redis": 1, "target": 1, "zookeepers": 3,
    "worker-redis": 3, "api-redis": 2, "worker-zookeeper": 3, "worker-target": 3,
}  # fmt: skip
MANY = 200


def test_a_seed_draws_the_same_traffic_again() -> None:
    assert draw_batch(Options(seed=7), 3) == draw_batch(Options(seed=7), 3)
    assert draw_batch(Options(seed=7), 3) != draw_batch(Options(seed=8), 3)
    assert draw_batch(Options(seed=7), 3) != draw_batch(Options(seed=7), 4)


def test_a_seed_draws_the_same_faults_again() -> None:
    drawn = draw_faults(7, 600, 3, tuple(KINDS), COUNTS)
    assert drawn == draw_faults(7, 600, 3, tuple(KINDS), COUNTS)
    assert drawn != draw_faults(8, 600, 3, tuple(KINDS), COUNTS)


def test_a_third_of_the_changes_is_close_to_the_due() -> None:
    messages = [one for number in range(MANY) for one in draw_batch(Options(), number)]
    changes = [change for one in messages for change in one.changes]
    close = [change for change in changes if change.place is None and abs(change.offset) <= CLOSE]
    assert 0.28 < len(close) / len(changes) < 0.4
    assert {change.cancel for change in close} == {True, False}


def test_half_of_the_messages_go_by_the_general_path() -> None:
    messages = [one for number in range(MANY) for one in draw_batch(Options(), number)]
    assert 0.45 < sum(one.general for one in messages) / len(messages) < 0.55
    assert [one.n for one in messages] == list(range(len(messages)))


def test_every_kind_of_fault_is_drawn_about_as_often_as_asked_for() -> None:
    drawn = draw_faults(1, 3_000, 3, tuple(KINDS), COUNTS)
    assert 900 < len(drawn) < 1_100
    assert {fault.kind for fault in drawn} == {name for name, kind in KINDS.items() if kind.weight}
    for fault in drawn:
        kind = KINDS[fault.kind]
        assert 0 <= fault.at < 3_000
        assert kind.shortest <= fault.seconds <= kind.longest
        assert fault.victim in range(COUNTS[kind.victims])


def test_only_the_kinds_that_were_asked_for_are_drawn() -> None:
    drawn = draw_faults(1, 300, 3, ("kill-redis", "pause-worker"), COUNTS)
    assert {fault.kind for fault in drawn} == {"kill-redis", "pause-worker"}


@pytest.mark.parametrize(
    ("change", "at"),
    [(Change(True, -20, None, 0), 2_980), (Change(True, 700, None, 0), 3_700), (Change(True, 0, 0.5, 0), 2_000)],
)
def test_a_change_is_made_around_the_due_or_on_the_way_to_it(change: Change, at: int) -> None:
    assert change.at(1_000, 3_000) == at


def test_a_relative_delay_counts_from_when_it_is_asked_for() -> None:
    one = replace(draw_batch(Options(), 0)[0], delay=700, absolute=False, together=False)
    assert one.due(10_000) == 10_700
    assert one.wire(10_700)["delayTime"] == 700
    assert replace(one, absolute=True).wire(10_700)["expectDate"] == 10_700
    assert replace(one, together=True).due(10_000) == 12_000


def test_a_command_line_without_a_seed_draws_one() -> None:
    assert parse(["--minutes", "2"]).seed != parse(["--minutes", "2"]).seed or parse([]).seed != parse([]).seed
    assert parse(["--seed", "4"]).seed == 4


@pytest.mark.parametrize("words", [["--kinds", "kill-nobody"], ["--kinds", ""], ["--minutes", "0"], ["--rate", "0"]])
def test_a_command_line_that_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_the_history_of_another_run_is_not_mixed_with_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(["--history", str(tmp_path)]).folder == tmp_path
    (tmp_path / "run.json").touch()
    with pytest.raises(SystemExit):
        parse(["--history", str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err
