"""How far a long command has come, shown on a terminal only."""

from __future__ import annotations

from typing import Any, Self, TextIO

from delayq.terminal import visible

__all__ = ["Bar", "TransientLine"]

_CLEAR = "\r\x1b[2K"


class TransientLine:
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


class Bar:
    """A bar with rows, rate and time left, on a terminal only; `show` may be called from any thread."""

    def __init__(self, stream: TextIO, total: int | None) -> None:
        self._progress: Any = None
        if stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn(
                    "{task.completed:,} of {task.total:,} rows" if total is not None else "{task.completed:,} rows"
                ),
                BarColumn(),
                TextColumn("{task.fields[rate]} rows/s"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(file=stream),
                transient=True,
            )
            self._task = self._progress.add_task("", total=total, rate="-", note="")

    def show(self, done: int, note: str = "") -> None:
        """So many rows are done."""
        if self._progress is not None:
            speed = self._progress.tasks[0].speed
            rate = "-" if speed is None else f"{speed:,.0f}"
            self._progress.update(self._task, completed=done, rate=rate, note=visible(note))

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
