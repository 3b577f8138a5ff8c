"""docs/faults.md and the tests beside this file tell the same."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "faults.md"
ROWS = {"A": 23, "B": 16, "C": 19, "D": 13, "E": 17, "F": 17, "G": 8, "H": 17, "I": 8}
ROW = re.compile(r"^\| ([A-I]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str, str]]:
    return {found[0]: found[1:] for found in ROW.findall(PAGE.read_text(encoding="utf-8"))}


def _tests() -> set[str]:
    """The name of each test here."""
    return set().union(*map(_tests_in, HERE.glob("test_*.py")))


@cache
def _tests_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def _awaited(path: str) -> bool:
    """Whether it is a test of a broker that this tree does not have: those that it has have an adapter."""
    broker = re.fullmatch(r"tests/targets/test_(kafka|rocketmq|rabbitmq)_\w+\.py", path)
    return broker is not None and not (ROOT / f"tests/targets/adapters/{broker[1]}.py").exists()


def test_the_page_has_every_row() -> None:
    assert list(rows()) == [f"{letter}{number}" for letter, most in ROWS.items() for number in range(1, most + 1)]


@pytest.mark.parametrize("row", sorted(rows()))
def test_a_row_names_its_tests_or_says_why_there_is_none(row: str) -> None:
    fault, answer, shown = rows()[row]
    assert "TODO" not in fault + answer + shown
    if shown.startswith("not injected: "):
        assert len(shown) > 40
        return
    elsewhere = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", shown)
    for path, name in elsewhere:
        assert _awaited(path) or name in _tests_in(ROOT / path)
    named = re.findall(r"`(test_\w+)`", shown)
    assert named or elsewhere
    assert set(named) <= _tests()
    assert all(name.startswith(f"test_{row.lower()}_") for name in named)


def test_every_test_of_a_row_stands_in_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    of_rows = {name for name in _tests() if re.match(r"test_[a-i]\d+_", name)}
    assert {name for name in of_rows if f"`{name}`" not in text} == set()
