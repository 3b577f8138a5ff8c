"""How far a long command has come, shown on a terminal only."""

from __future__ import annotations

from typing import Self, TextIO

from delayq.cli.output import visible

__all__ = ["Line"]

_CLEAR = "\r\x1b[2K"


class Line:
    """A line that is written over and over, and gone at the end; nothing where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()

    def show(self, text: str) -> None:
        """Show this in place of what was there."""
        if self._terminal:
            self._stream.write(_CLEAR + visible(text))
            self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._stream.write(_CLEAR)
            self._stream.flush()
