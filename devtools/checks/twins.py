"""Code for threads and asyncio is written once: the module for threads is generated (devtools/unasync.py)."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from devtools import unasync
from devtools.checks.logged import SOURCES
from devtools.pages import ROOT, at, read, tree

MOST: Final = 20  # lines in all that may be written twice
BY_CHANCE: Final = 2  # lines that two functions of one name may share, and mean nothing


class _Function(NamedTuple):
    path: Path
    line: int
    is_coroutine: bool
    lines: Counter[str]


def are_up_to_date() -> Iterator[str]:
    """Each generated module is what its source gives."""
    for path in unasync.outdated():
        yield at(path, 1, "it differs from its source: ./dev check --fix writes it again")


def complaints() -> Iterator[str]:
    """Few lines are written both for threads and for asyncio."""
    by_name: dict[str, list[_Function]] = defaultdict(list)
    generated = {unasync.made_from(source) for source in unasync.SOURCES}
    for path in SOURCES:
        if path not in generated:
            for name, function in _functions(path):
                by_name[name].append(function)
    alike = []
    for name, found in by_name.items():
        for one in found:
            if one.is_coroutine and one.path not in unasync.SOURCES:  # the twin of a source is generated
                twins = [((other.lines & one.lines).total(), other) for other in found if not other.is_coroutine]
                shared, twin = max(twins, key=lambda pair: pair[0], default=(0, one))
                if shared > BY_CHANCE:
                    alike.append((shared, name, one, twin))
    if (total := sum(shared for shared, *_ in alike)) > MOST:
        shared, name, one, twin = max(alike, key=lambda entry: entry[0])
        where = f"{twin.path.relative_to(ROOT)}:{twin.line}"
        yield at(
            one.path,
            one.line,
            f"{total} lines are written for threads and for asyncio, {MOST} may be; {name} shares {shared} with {where}: "
            "generate one from the other (devtools/unasync.py)",
        )


def _functions(path: Path) -> Iterator[tuple[str, _Function]]:
    """Each function by its name, with its lines as they are without `async` and `await`. A line of one word is not
    counted.
    """
    lines = read(path).splitlines()
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bare = (re.sub(r"\b(async|await) ", "", line).strip() for line in lines[node.lineno - 1 : node.end_lineno])
            counted = Counter(line for line in bare if re.search(r"\w\W+\w", line))
            yield node.name, _Function(path, node.lineno, isinstance(node, ast.AsyncFunctionDef), counted)
