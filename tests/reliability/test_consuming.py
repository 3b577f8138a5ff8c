"""`python -m reliability.consuming`, as it is documented, and its checker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.consuming.checker import Turn, Verdict, check
from reliability.consuming.records import Line, read
from tests.support.service import ROOT

LAST = re.compile(
    r"faults 15, messages [1-9]\d*, leases [1-9]\d*, handed back \d+, dead letters \d+, "
    r"lost 0, two valid leases 0, received after acknowledgement 0, overtaken 0"
)


@pytest.mark.long
def test_faults_of_every_kind_lose_no_message_and_no_message_has_two_leases(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^\.venv/bin/python -m reliability\.consuming (.+)$", (ROOT / "docs" / "chaos.md").read_text(), re.M
    )
    words = [*command.replace("--faults 30", "--faults 15").split(), "--each-kind", "--records", str(tmp_path / "kept")]
    ran = subprocess.run(
        [sys.executable, "-m", "reliability.consuming", *words], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert LAST.fullmatch(ran.stdout.splitlines()[-1]), ran.stdout
    assert any(line[1] == "leased" for line in read(tmp_path / "kept" / "c0.jsonl"))


def checked(*lines: Line, dead: frozenset[str] = frozenset()) -> Verdict:
    return check(["m-1"], {"work": [lines]}, dead)


LEASED: Line = (10, "leased", "m-1", "a", 100)
HANDLED: Line = (20, "handled", "m-1", "a", None)
SETTLED: Line = (30, "settled", "m-1", "a", "acknowledged")


def test_a_message_that_is_handled_or_a_dead_letter_is_not_lost() -> None:
    assert checked(LEASED, HANDLED, SETTLED).is_good
    assert checked(LEASED).lost == ["m-1 of work"]
    assert checked(LEASED, dead=frozenset({"m-1:work"})).lost == []


@pytest.mark.parametrize(
    ("more", "doubled"),
    [
        ([(99, "leased", "m-1", "b", 190)], True),
        ([(100, "leased", "m-1", "b", 190)], False),
        ([(50, "handled", "m-1", "a", None), (60, "leased", "m-1", "b", 190)], False),
        ([(50, "returns", "m-1", "a", None), (60, "leased", "m-1", "b", 190)], False),
        ([(90, "extended", "m-1", "a", 180), (110, "leased", "m-1", "b", 190)], True),
        ([(50, "leased", "m-1", "a", 100)], False),
        ([(120, "leased", "m-1", "b", 110)], False),
    ],
    ids=[
        "at once",
        "when it has ended",
        "acknowledged",
        "handed back",
        "extended",
        "the same again",
        "answered too late",
    ],
)
def test_two_leases_of_a_message_at_a_time_are_found(more: list[Line], doubled: bool) -> None:
    assert bool(checked(LEASED, *more).doubled) is doubled


def test_a_message_that_is_received_after_its_acknowledgement_is_found() -> None:
    assert checked(LEASED, HANDLED, SETTLED, (40, "leased", "m-1", "b", 140)).again
    assert not checked(LEASED, HANDLED, (30, "settled", "m-1", "a", "lost"), (40, "leased", "m-1", "b", 140)).again


EARLIER: Line = (10, "leased", "m-1", "a", 100)
LATER: Line = (5, "leased", "m-2", "b", 100)


@pytest.mark.parametrize(
    ("turns", "overtaken"),
    [
        ({"m-1": Turn("key 3", 100), "m-2": Turn("key 3", 200)}, True),
        ({"m-1": Turn("key 3", 100), "m-2": Turn("key 3", 100)}, False),
        ({"m-1": Turn("key 3", 100), "m-2": Turn("key 4", 200)}, False),
        ({"m-2": Turn("key 3", 200)}, False),
    ],
    ids=["of one key", "due at the same time", "of two queues", "without a key"],
)
def test_a_message_that_is_received_after_a_later_one_of_its_key_is_found(
    turns: dict[str, Turn], overtaken: bool
) -> None:
    assert bool(check(["m-1"], {"work": [[EARLIER, LATER]]}, frozenset(), turns).overtaken) is overtaken


def test_a_message_that_was_handed_back_to_another_topic_and_never_arrived_is_lost() -> None:
    moved: Line = (20, "moved", "m-1", "a", None)
    assert checked(LEASED, moved, HANDLED, SETTLED).lost == ["m-1 of work, handed back to its own topic"]
    arrived: Line = (40, "handled", "m-1.b1-0a1b2c3d", "b", "moved")
    assert checked(LEASED, moved, HANDLED, SETTLED, arrived).is_good
    assert checked(LEASED, moved, HANDLED, SETTLED, dead=frozenset({"m-1.b2-0a1b2c3d:work"})).is_good


def test_a_line_that_a_kill_cut_off_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "c0.jsonl").write_text('\n[10,"leased","m-1","a",100]\n[20,"hand')
    assert list(read(tmp_path / "c0.jsonl")) == [LEASED]
