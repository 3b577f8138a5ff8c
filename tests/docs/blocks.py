"""The fenced code blocks of README.md and docs/, and the note (an HTML comment) in the line above each.

A page is a story: its blocks run in order, in one folder, and Python blocks share their names. Notes:

    <!-- file NAME -->          the block is written to that file, for the blocks behind it
    <!-- prints -->             the block is what the one before it prints; see `matches`
    <!-- until TEXT -->         the block goes on for ever; it is ended when it has printed TEXT
    <!-- exit N -->             the command ends with that status
    <!-- run by tests/… -->     another test runs it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["PAGES", "ROOT", "Block", "blocks_of", "matches"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_NOTE = re.compile(r"^\s*<!-- (prints|(?:file|until|exit|run by) .+) -->$")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_MOMENT: Final = 10**12  # numbers from here on are times in Unix ms


class Block(NamedTuple):
    """A block, and where it stands."""

    page: Path
    line: int
    language: str
    text: str
    note: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    numbered = iter(enumerate(lines, start=1))
    above = ""
    for number, line in numbered:
        if (opened := _FENCE.match(line)) is None:
            above = line
            continue
        indent, fence, language = opened.groups()
        text = []
        for _, inner in numbered:
            if inner.strip() == fence:
                break
            text.append(inner.removeprefix(indent))
        else:
            raise AssertionError(f"{page.name}:{number}: this block has no end")
        note = _NOTE.match(above)
        yield Block(page, number, language.strip(), "\n".join(text) + "\n", note[1] if note else "")
        above = ""


def matches(shown: str, printed: str) -> bool:
    """Whether a program printed what the page shows.

    JSON is compared as JSON: any time stands for any other, in RFC 3339 or Unix ms. '…' stands for anything.
    """
    try:
        wanted, got = json.loads(shown), json.loads(printed)
    except ValueError:
        return _text_matches(shown.strip(), printed.strip())
    return _value_matches(wanted, got)


def _value_matches(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(got, dict):
        return wanted.keys() == got.keys() and all(_value_matches(wanted[name], got[name]) for name in wanted)
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(_value_matches, wanted, got))
    if isinstance(wanted, str) and isinstance(got, str):
        both_instants = bool(_INSTANT.fullmatch(wanted) and _INSTANT.fullmatch(got))
        return both_instants or _text_matches(wanted, got)
    if type(wanted) is int and type(got) is int and min(wanted, got) >= _MOMENT:
        return True
    return type(wanted) is type(got) and bool(wanted == got)


def _text_matches(wanted: str, got: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), got, re.DOTALL) is not None
