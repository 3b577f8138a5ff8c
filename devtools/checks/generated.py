"""Parts of files that are generated: the check compares them, and ./dev check --fix writes them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from devtools.pages import at, read

#: Returns a file's text as it should be, given its text as it is. Raises ValueError if the marks are missing.
Generator: TypeAlias = Callable[[str], str]
MOST: Final = 10  # differences shown of a file
LEADING: Final = 60  # characters shown before a difference
LONGEST: Final = 120  # characters shown in all


def differences(path: Path, generate: Generator) -> Iterator[str]:
    """A complaint for each place that differs from what would be generated, for the first ten of a file."""
    text = read(path)
    if (wanted := generate(text)) == text:
        return
    found, should = text.splitlines(keepends=True), wanted.splitlines(keepends=True)
    changes = [one for one in difflib.SequenceMatcher(None, found, should).get_opcodes() if one[0] != "equal"]
    for _, begin, end, wanted_begin, wanted_end in changes[:MOST]:
        shown, instead = "".join(found[begin:end]).strip(), "".join(should[wanted_begin:wanted_end]).strip()
        same = next((index for index, (one, other) in enumerate(zip(shown, instead, strict=False)) if one != other), 0)
        start = max(0, same - LEADING)
        words = f"{_shortened(shown, start)} should be {_shortened(instead, start)}"
        yield at(path, begin + 1, f"{words}: ./dev check --fix writes it")


def _shortened(text: str, start: int) -> str:
    """The text from about where it differs."""
    if not text:
        return "nothing"
    return repr(("…" if start else "") + text[start : start + LONGEST] + ("…" if len(text) > start + LONGEST else ""))


def write(path: Path, generate: Generator) -> None:
    """Write the file as it should be, if it differs."""
    text = read(path)
    if (wanted := generate(text)) != text:
        path.write_text(wanted, encoding="utf-8")
