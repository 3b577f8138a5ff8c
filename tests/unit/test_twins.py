"""What is the same for threads and for asyncio is written once: the one for threads is made from the other."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devtools import unasync

MOST: Final = 40
PRODUCT: Final = ("api", "coordinator", "delayq", "workers")


def _written() -> Iterator[Path]:
    made = {unasync.made_from(source) for source in unasync.SOURCES}
    for folder in PRODUCT:
        yield from (path for path in sorted((unasync.ROOT / folder).rglob("*.py")) if path not in made)


def _functions() -> Iterator[tuple[bool, str, Counter[str]]]:
    """Of each function whether it is a coroutine, its name, and its lines as they would be without `async` and `await`.

    A line of one word is no more than the language wants.
    """
    for path in _written():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                bare = (
                    re.sub(r"\b(async|await) ", "", line).strip() for line in lines[node.lineno - 1 : node.end_lineno]
                )
                yield (
                    isinstance(node, ast.AsyncFunctionDef),
                    node.name,
                    Counter(line for line in bare if re.search(r"\w\W+\w", line)),
                )


def test_few_lines_are_written_both_for_threads_and_for_asyncio() -> None:
    found = list(_functions())
    alike = 0
    for _, name, lines in (one for one in found if one[0]):
        twins = [(other & lines).total() for coroutine, named, other in found if not coroutine and named == name]
        alike += max(twins, default=0)
    assert alike <= MOST


def test_a_made_module_says_what_it_is_made_from_and_is_up_to_date() -> None:
    assert unasync.outdated() == []
    for source in unasync.SOURCES:
        assert source.name in unasync.made_from(source).read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ("async def one() -> None:\n    await two()\n", "def one() -> None:\n    two()\n"),
        ("import asyncio\n\nasyncio.sleep(1)\n", "import asyncio\n\nasyncio.sleep(1)\n"),
        ("class AsyncOne(_AsyncTwo):\n    _async_three = 4\n", "class One(_Two):\n    _three = 4\n"),
        (
            "async with one:\n    async for two in one:\n        pass\n",
            "with one:\n    for two in one:\n        pass\n",
        ),
        ("def __aenter__(): ...\ndef __aexit__(): ...\n", "def __enter__(): ...\ndef __exit__(): ...\n"),
    ],
)
def test_what_is_made_of_what_is_written(written: str, made: str) -> None:
    assert unasync.replaced(written) == made
