"""Prints the output of commands: a table on a terminal, lines with tabs for scripts, or JSON.

Messages have text of others, so each character that could move a cursor, end a line or turn text around is escaped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

__all__ = ["Output", "say", "visible"]

# C0 and C1 controls, line and paragraph separators, marks that turn the direction of text, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return _SHORT.get(match.group()) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def visible(text: str) -> str:
    """Escape every character that a terminal, or a program that reads lines, would obey."""
    return _UNSAFE.sub(_escape, text)


def _shown(cell: object) -> str:
    """The text of a cell; '-' for None."""
    return "-" if cell is None else visible(str(cell))


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def say(text: str) -> None:
    """Print a sentence to stderr. If stderr is closed, the command continues without it."""
    with suppress(OSError):
        sys.stderr.write(f"delayq: {visible(text)}\n")
        sys.stderr.flush()


class Output:
    """The output of a command."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self._console: Any = None

    def json(self, value: object, *, indent: bool = True) -> None:
        """Print JSON on one line, or indented on a terminal."""
        raw = msgspec.json.encode(value)
        if self.terminal and indent:
            raw = msgspec.json.format(raw, indent=2)
        lines = (_UNSAFE.sub(_json_escape, line) for line in raw.decode().split("\n"))
        self._write("\n".join(lines) + "\n")

    def answer(self, json: bool, value: object, pairs: Iterable[tuple[str, object]]) -> None:
        """Print the whole answer of a command: `value` as JSON, or names and values."""
        if json:
            self.json(value)
        else:
            self.fields(pairs)

    def line(self, *cells: object) -> None:
        """Print one line at once."""
        self._write(("  " if self.terminal else "\t").join(map(_shown, cells)) + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows below the names of their columns; scripts get no names."""
        if not self.terminal:
            self._write("".join("\t".join(map(_shown, row)) + "\n" for row in rows))
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for column in table.columns:
            column.overflow = "fold"  # an id that is cut off cannot be copied
        for row in rows:
            table.add_row(*(Text(_shown(cell)) for cell in row))
        self.console.print(table)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair a line."""
        if not self.terminal:
            self._write("".join(f"{name}\t{_shown(value)}\n" for name, value in pairs))
            return
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in pairs:
            grid.add_row(Text(name, style="bold"), Text(_shown(value), overflow="fold"))
        self.console.print(grid)

    @property
    def console(self) -> Any:
        """The terminal, which does not interpret markup."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(markup=False, emoji=False, highlight=False)
        return self._console

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
