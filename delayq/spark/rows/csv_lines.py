"""CSV, one row per line, as a table of texts: Spark and the local mode use the same code.

The first line of a file that is not blank names its columns. Text that readers of CSV interpret in different ways is
refused: a quote within quotes that nothing escapes, and a value of several lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from delayq.base.errors import ConfigError

#: The supported options of Spark's reader.
OPTIONS: Final = ("sep", "delimiter", "escape")
#: A line of only these characters is no row, as in Java's trim.
_BLANK: Final = "".join(map(chr, range(33)))


def dialect(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the separator and the escape. Raises ConfigError."""
    separator = options.get("sep", options.get("delimiter", ","))
    escape = options.get("escape", "\\")
    if len(separator) != 1 or len(escape) != 1 or separator in ('"', escape):
        raise ConfigError("--option: sep and escape must be one character each, and different")
    return separator, escape


def is_blank(line: str) -> bool:
    """Return whether a line is not a row."""
    return not line.strip(_BLANK)


def names_of(head: Sequence[str | None]) -> list[str]:
    """Return the names of the columns, by the cells of the first line.

    As in Spark, a column without a name gets one, and columns of one name get their numbers.
    """
    counts = Counter(head)
    return [
        f"_c{place}" if name is None else f"{name}{place}" if counts[name] > 1 else name
        for place, name in enumerate(head)
    ]


def cells(line: str, separator: str, escape: str) -> list[str | None]:
    """Return the values of a line. Raises ValueError for a line that readers of CSV interpret differently."""
    if '"' not in line:
        return [value or None for value in line.split(separator)]
    found: list[str | None] = []
    at = 0
    while True:
        if line.startswith('"', at):
            value, at = _quoted(line, at + 1, escape)
            if at < len(line) and line[at] != separator:
                hint = "" if escape == '"' else "; if it writes a quote twice, say --option 'escape=\"'"
                raise ValueError(f"has a quote within a quoted value that nothing escapes{hint}")
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            value, at = line[at:end], end
        found.append(value or None)
        if at >= len(line):
            return found
        at += 1


def _quoted(line: str, at: int, escape: str) -> tuple[str, int]:
    """Return a value up to its closing quote, and the place after that."""
    value = []
    while at < len(line):
        one, next_one = line[at], line[at + 1 : at + 2]
        if one == escape and next_one and next_one in ('"', escape):
            value.append(next_one)
            at += 2
        elif one == '"':
            return "".join(value), at + 1
        else:
            value.append(one)
            at += 1
    raise ValueError("ends within a quoted value; a value must be one line")
