"""docs/faults.md: each row, and each promise of README.md, names tests that exist, and the layer in which they run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from devtools.checks.generated import differences
from devtools.pages import DOCS, ROOT, Row, at, read, rows_after, tree

PAGE: Final = DOCS / "faults.md"
README: Final = ROOT / "README.md"
FOLDER: Final = ROOT / "tests" / "faults"
#: The rows of each section.
ROWS: Final = {"A": 23, "B": 16, "C": 19, "D": 13, "E": 17, "F": 17, "G": 8, "H": 18, "I": 11}
#: The layers behind the default one, the one that runs least often first.
LAYERS: Final = ("release", "long")
NOT_INJECTED: Final = "not injected: "
REASON: Final = 40  # characters that a reason has at least
_ROW: Final = re.compile(r"^\| ([A-I]\d+) ")
_TEST: Final = re.compile(r"`(?:(tests/[^\s`]+\.py)::)?(test_\w+)`(?: \((?:%s)\))?" % "|".join(LAYERS))  # noqa: UP031 - braces


def complaints() -> Iterator[str]:
    """Rows are complete, and so are promises; the tests that they name exist and run in the named layer."""
    rows = list(_rows())
    wanted = [f"{letter}{number}" for letter, most in ROWS.items() for number in range(1, most + 1)]
    if (names := [_name(row) for row in rows]) != wanted:
        odd = sorted(set(names) ^ set(wanted)) or ["their order"]
        yield at(
            PAGE,
            1,
            f"rows are missing, new or in disorder: {', '.join(odd)}. ROWS in {Path(__file__).name} counts them",
        )
    for row in rows:
        yield from _row(row)
    yield from _promises()
    yield from differences(PAGE, with_layers)
    named = read(PAGE)
    for path in sorted(FOLDER.glob("test_*.py")):
        for name, (line, _) in _tests(path).items():
            if re.match(r"test_[a-i]\d+_", name) and f"`{name}`" not in named:
                yield at(path, line, f"no row of docs/faults.md names {name}: add it to its row")


def _rows() -> Iterator[Row]:
    for number, line in enumerate(read(PAGE).splitlines(), start=1):
        if _ROW.match(line):
            yield Row(number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])


def _name(row: Row) -> str:
    return row.cells[0].partition(" ")[0]


def _row(row: Row) -> Iterator[str]:
    name, shown = _name(row), row.cells[-1]
    if len(row.cells) != 3 or "TODO" in "".join(row.cells):
        yield at(
            PAGE, row.line, f"{name} should have 3 finished cells: its number and the fault, the answer, the tests"
        )
    if shown.startswith(NOT_INJECTED):
        if len(shown) <= REASON:
            yield at(PAGE, row.line, f"{name} should say why it cannot be injected")
        return
    yield from _tests_exist(row, shown)
    for path, test in _TEST.findall(shown):
        if not path and not test.startswith(f"test_{name.lower()}_"):
            yield at(PAGE, row.line, f"{test} is not named after {name}: rename it, or name it with its folder")


def _tests_exist(row: Row, shown: str) -> Iterator[str]:
    found = _TEST.findall(shown)
    if not found:
        yield at(PAGE, row.line, f"the row {row.cells[0]} names no test: name the one that shows it")
    for path, test in found:
        if _layer(path, test) is None:
            yield at(PAGE, row.line, f"there is no {path or 'tests/faults'}::{test}: name the test that shows this now")


def _promises() -> Iterator[str]:
    """Each promise of README.md has its row, and each row its promise."""
    section = read(README).partition("## What it promises\n")
    first = section[0].count("\n") + 2
    lines = section[2].partition("\n## ")[0].splitlines()
    promised = {
        found[1]: number for number, line in enumerate(lines, first) if (found := re.match(r"- \*\*(.+?)\.?\*\*", line))
    }
    rows = {row.cells[0]: row for row in rows_after(PAGE, "## Promises")}
    for name, number in promised.items():
        if name not in rows:
            yield at(
                README, number, f"the table of promises in docs/faults.md has no {name!r}: name the tests that show it"
            )
    for name, row in rows.items():
        if name not in promised:
            yield at(PAGE, row.line, f"README.md does not promise {name!r}: write the promise with the same words")
        yield from _tests_exist(row, row.cells[1])


def with_layers(text: str) -> str:
    """The page with the layer of each test behind it, unless that is the default one."""

    def named(found: re.Match[str]) -> str:
        path, test = found.groups()
        layer = _layer(path or "", test)
        name = f"{path}::{test}" if path else test
        return f"`{name}` ({layer})" if layer else f"`{name}`"

    return _TEST.sub(named, text)


def _layer(path: str, test: str) -> str | None:
    """The layer of a test, empty for the default one; None if there is no such test."""
    for file in [ROOT / path] if path else sorted(FOLDER.glob("test_*.py")):
        if test in _tests(file):
            return _tests(file)[test][1]
    return None


@cache
def _tests(path: Path) -> dict[str, tuple[int, str]]:
    """The line and the layer of each test of a file."""
    if not path.is_file():
        return {}
    marks = [
        node.value
        for node in tree(path).body
        if isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == "pytestmark" for one in node.targets)
    ]
    found = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            own = [one for one in node.decorator_list if not _is_parametrize(one)]
            named = {
                inner.attr for mark in [*marks, *own] for inner in ast.walk(mark) if isinstance(inner, ast.Attribute)
            }
            found[node.name] = node.lineno, next((layer for layer in LAYERS if layer in named), "")
    return found


def _is_parametrize(node: ast.expr) -> bool:
    """Whether a decorator gives the parameters, of which some may belong to another layer."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize"
