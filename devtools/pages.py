"""README.md, docs/ and code as checks and tests read them: fenced code blocks, tables, and places for complaints.

A page is a story: its blocks run in order, in one folder, and Python blocks share their names. The HTML comment in the
line above a block decides the use of the block:

    <!-- file NAME -->          the block is written to that file, for the blocks that follow
    <!-- prints -->             the previous block prints it; see `matches` in tests/docs/blocks.py
    <!-- until TEXT -->         it runs forever; it is ended as soon as it has printed TEXT
    <!-- exit N -->             the command ends with that status
    <!-- run by tests/… -->     another test runs it
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
PAGES: Final = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_NOTE: Final = re.compile(r"^\s*<!-- (prints|(?:file|until|exit|run by) .+) -->$")


class Block(NamedTuple):
    """A fenced code block and its place."""

    page: Path
    line: int
    language: str
    text: str
    note: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Row(NamedTuple):
    """A row of a table: its line in the page, and its cells without the blanks around them."""

    line: int
    cells: list[str]


def read(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a module. Several checks walk it."""
    return ast.parse(read(path))


def at(path: Path, line: int, complaint: str) -> str:
    """A complaint with its place."""
    return f"{path.relative_to(ROOT)}:{line}: {complaint}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced code blocks of a page, in order. Raises ValueError if a block has no end."""
    return list(_blocks(page, read(page).splitlines()))


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
            raise ValueError(at(page, number, "this block has no end"))
        note = _NOTE.match(above)
        yield Block(page, number, language.strip(), "\n".join(text) + "\n", note[1] if note else "")
        above = ""


def rows_after(page: Path, start: str) -> list[Row]:
    """The rows of the first table after the line that begins with `start`. Raises ValueError if there is no such table."""
    lines = read(page).splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith(start)), None)
    if begin is None:
        raise ValueError(f"{page.relative_to(ROOT)}:1: no line begins with {start!r}")
    found: list[Row] = []
    for number, line in enumerate(lines[begin + 1 :], start=begin + 2):
        if line.startswith("|"):
            found.append(Row(number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]))
        elif found or line.startswith("#"):
            break
    if len(found) < 3:
        raise ValueError(at(page, begin + 1, "no table follows"))
    return found[2:]


def with_part(path: Path, text: str, begin: str, part: str, end: str) -> str:
    """The text of a page with another part between two lines; raises ValueError if the page has lost one of them."""
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{path.name} needs the lines {begin.strip()!r} and {end.strip()!r}")
    return f"{before}{begin}\n{part}\n{end}{after}"


def names_in(cell: str) -> frozenset[str]:
    """The texts in backticks."""
    return frozenset(re.findall(r"`([^`]+)`", cell))
