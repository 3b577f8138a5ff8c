"""Prints the output of commands: tables and blocks on a terminal, lines with tabs for scripts, or JSON.

Messages contain text of others. Each character that could move a cursor, end a line or reverse text is escaped.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

# C0 and C1 controls, line and paragraph separators, marks that turn the direction of text, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
#: Blanks between two columns, and before the second line of a value.
_GAP: Final = 2
#: A text beside a name has at least this many cells per line; with fewer, it begins below the name.
_LEAST_TEXT: Final = 20
#: The longest bar, and the shortest that still shows something.
_BARS: Final = range(5, 31)
_STYLES: Final = {"bold": "1", "italic": "3", "red": "1;31", "green": "32", "yellow": "33", "cyan": "36"}


class TwoForms(str):
    """A text for programs, and its short form for a terminal."""

    short: str

    def __new__(cls, text: str, short: str) -> TwoForms:
        """Make a text that is `text` everywhere except where its `short` form is requested."""
        made = super().__new__(cls, text)
        made.short = short
        return made


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return _SHORT.get(match.group()) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def visible(text: str) -> str:
    """Escape every character that a terminal, or a program that reads lines, would interpret."""
    return _UNSAFE.sub(_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def say(text: str) -> None:
    """Print a sentence to stderr. If stderr is closed, the command continues without it."""
    with suppress(OSError):
        sys.stderr.write(f"delayq: {visible(text)}\n")
        sys.stderr.flush()


class Output:
    """The output of a command.

    On a terminal, no word is split between two lines, so that ids, topics and commands can be copied. A row of a table
    that is wider than the terminal becomes a block, with a line for each cell.
    """

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        #: Whether the last row was a block; None before the first row.
        self._after_block: bool | None = None

    def json(self, value: object, *, indent: bool = True) -> None:
        """Print JSON on one line, or indented on a terminal."""
        raw = msgspec.json.encode(value)
        if self.terminal and indent:
            raw = msgspec.json.format(raw, indent=2)
        self._write(_UNSAFE.sub(_json_escape, line) for line in raw.decode().split("\n"))

    def answer(self, json: bool, value: object, pairs: Iterable[tuple[str, object]]) -> None:
        """Print the complete answer of a command: `value` as JSON, or names and values."""
        if json:
            self.json(value)
        else:
            self.fields(pairs)

    def line(self, text: str) -> None:
        """Print a text as one line."""
        self._write([visible(text)])

    def row(self, columns: Sequence[str], cells: Sequence[object]) -> None:
        """Print one row at once, without the names of its columns; if it is too wide, a block with the names."""
        texts = [self._text(cell) for cell in cells]
        if not self.terminal:
            self._write(["\t".join(texts)])
            return
        is_block = sum(map(_cells, texts)) + _GAP * (len(texts) - 1) > _width()
        before = [""] if self._after_block or (is_block and self._after_block is not None) else []
        self._write([*before, *(self._block(columns, cells) if is_block else [(" " * _GAP).join(texts)])])
        self._after_block = is_block

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows below the names of their columns; scripts get no names."""
        if self.terminal:
            self._write(self._laid_out(columns, [*rows]))
        else:
            self._write("\t".join(map(self._text, row)) for row in rows)

    def bars(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table; on a terminal each row has a bar, as long as the number in its second cell is large."""
        if self.terminal and rows:
            texts = [[*columns], *([self._text(cell) for cell in row] for row in rows)]
            left = _width() - sum(max(map(_cells, column)) + _GAP for column in zip(*texts, strict=True))
            numbers = [row[1] for row in rows if isinstance(row[1], int)]
            longest, most = min(left, _BARS[-1]), max(numbers, default=0) or 1
            if longest in _BARS:
                columns = (*columns, "")
                rows = [(*row, "█" * (longest * n // most)) for row, n in zip(rows, numbers, strict=True)]
        self.table(columns, rows)

    def fields(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Print names and values, one pair a line."""
        if self.terminal:
            self._write(self._pairs([(name, self._text(value)) for name, value in pairs]))
        else:
            self._write(f"{name}\t{self._text(value)}" for name, value in pairs)

    def remark(self, heads: Sequence[tuple[str, int, str]], texts: Sequence[tuple[str, str]]) -> None:
        """Print words in columns, each with its width and style, and beside them texts, each with its style."""
        if not self.terminal:
            self._write(["\t".join([*(visible(head) for head, _, _ in heads), *(visible(text) for text, _ in texts)])])
            return
        start = "".join(_styled(f"{head:<{width}}", style) for head, width, style in heads)
        indent = sum(width for _, width, _ in heads)
        if _width() - indent < _LEAST_TEXT:
            indent = _GAP
            self._write([start.rstrip(" ")])
            start = " " * indent
        for text, style in texts:
            for line in _wrapped(visible(text), _width() - indent) if text else ():
                self._write([start + _styled(line, style)])
                start = " " * indent

    # -- layout ----------------------------------------------------------------------------------------------------------

    def _text(self, cell: object) -> str:
        """The text of a cell; '-' for None."""
        if cell is None:
            return "-"
        return visible(cell.short if self.terminal and isinstance(cell, TwoForms) else str(cell))

    def _laid_out(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
        """The lines of a table: rows in columns as far as they fit, and the others as blocks in their places."""
        texts = [[self._text(cell) for cell in row] for row in rows]
        widths, fitting = _fitting([_cells(name) for name in columns], [[*map(_cells, row)] for row in texts])
        right = [all(isinstance(row[place], int | float | None) for row in rows) for place in range(len(columns))]

        def joined(cells: Sequence[str]) -> str:
            padded = [_padded(*one) for one in zip(cells, widths, right, strict=True)]
            return (" " * _GAP).join(padded).rstrip(" ")

        lines = [_styled(joined(columns), "bold")] if fitting else []
        for number, row in enumerate(rows):
            if number in fitting:
                lines.append(joined(texts[number]))
            else:
                gap = [""] if lines and lines[-1] else []
                lines += [*gap, *self._block(columns, row), ""]
        return lines[:-1] if lines and not lines[-1] else lines

    def _block(self, columns: Sequence[str], cells: Sequence[object]) -> list[str]:
        """The lines of a row that is too wide: its cells by their names, without those that are None."""
        named = zip(columns, cells, strict=True)
        return self._pairs([(name, self._text(cell)) for name, cell in named if cell is not None])

    @staticmethod
    def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
        """The lines of names with their values."""
        indent = max((_cells(name) for name, _ in pairs), default=0) + _GAP
        lines: list[str] = []
        for name, text in pairs:
            room = _width() - indent
            if room >= min(_LEAST_TEXT, _cells(text)) and max(map(_cells, text.split(" "))) <= room:
                first, *more = _wrapped(text, room)
                lines.append(_styled(_padded(name, indent), "bold") + first)
                lines += (" " * indent + line for line in more)
            else:
                lines += [_styled(name, "bold"), *(" " * _GAP + line for line in _wrapped(text, _width() - _GAP))]
        return lines

    @staticmethod
    def _write(lines: Iterable[str]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def _width() -> int:
    return shutil.get_terminal_size().columns


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes: characters of Chinese, Japanese and Korean take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int, right: bool = False) -> str:
    blanks = " " * (width - _cells(text))
    return blanks + text if right else text + blanks


def _styled(text: str, style: str) -> str:
    if not style or "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _fitting(heads: list[int], rows: list[list[int]]) -> tuple[list[int], set[int]]:
    """The widths of a table's columns, and which rows fit into the terminal with them.

    Narrow rows come first, so that one wide row does not make blocks of all others. A table in which less than half of
    the rows fit is all blocks.
    """
    room, fitting, widths = _width() - _GAP * (len(heads) - 1), set(), heads
    for number in sorted(range(len(rows)), key=lambda number: sum(rows[number])):
        wider = [*map(max, widths, rows[number])]
        if sum(wider) <= room:
            widths = wider
            fitting.add(number)
    return widths, fitting if 2 * len(fitting) >= len(rows) else set()


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, split at blanks only. A word that is longer than a line is not split."""
    lines, line = [], ""
    for word in re.split(r"(?<= )(?=[^ ])", text):
        if line and _cells(line) + _cells(word.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line = ""
        line += word
    return [*lines, line]
