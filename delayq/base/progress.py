"""Shows the progress of a long step. Standard library only, because ./dev uses it before anything is installed."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self, TextIO

from delayq.base.clock import Clock, SystemClock

#: On a terminal, the line is redrawn at this interval (ms).
REDRAW: Final = 250
#: Elsewhere, a step that still runs after FIRST gets a line, and another one every EVERY (ms).
FIRST: Final = 2_000
EVERY: Final = 10_000
#: `look` is called at this interval at most (ms).
LOOK: Final = 500
CLEAR: Final = "\r\x1b[2K"
WHEEL: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
#: Time left is shown in minutes from this length on (s).
MINUTES: Final = 120
#: Enough for a line of a log.
LONGEST: Final = 160


class Progress:
    """A step that may take long, on standard error from `with` until its end.

    On a terminal, it has one line, which is redrawn and disappears at the end. Elsewhere, it has a line after two
    seconds and then one every ten seconds, each with `name` at its beginning. All methods may be called from any
    thread. `look` is called before a line is written, at most every half second, to show progress that the step itself
    cannot.
    """

    def __init__(
        self,
        step: str,
        unit: str = "",
        *,
        name: str = "delayq",
        look: Callable[[Progress], None] | None = None,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._step, self._unit, self._name = step, unit, name
        self._look, self._look_at = look, 0
        self._stream = sys.stderr if stream is None else stream
        self._clock: Clock = SystemClock() if clock is None else clock
        self._terminal = self._stream.isatty()
        self._began = self._counted = self._clock.monotonic()
        self._done: int | None = None
        self._first = 0
        self._total: int | None = None
        self._note = ""
        self._changed = threading.Condition()
        self._ended = False
        self._turn = 0
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def show(self, note: str) -> None:
        """Replace the note, such as the last line that a program has printed."""
        with self._changed:
            self._note = note

    def count(self, done: int, total: int | None = None, note: str = "") -> None:
        """Replace the amount that is done, the total if it is known, and the note."""
        with self._changed:
            if self._done is None:  # the time before the first amount, such as Spark's start, is not part of the rate
                self._counted, self._first = self._clock.monotonic(), done
            self._done, self._total, self._note = done, total, note

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the line on the terminal while the block runs, so that the block can print."""
        with self._changed:
            self._clear()
            yield

    def __enter__(self) -> Self:
        self._began = self._clock.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join()

    def _follow(self) -> None:
        due = self._began + (0 if self._terminal else FIRST)
        with self._changed:
            while not self._ended:
                if (wait := due - self._clock.monotonic()) > 0:
                    self._clock.wait(self._changed, wait)
                    continue
                self._look_again()
                self._draw()
                due = self._next(due)
            self._clear()

    def _next(self, due: int) -> int:
        now = self._clock.monotonic()
        return now + REDRAW if self._terminal else now - (now - self._began) % EVERY + EVERY

    def _look_again(self) -> None:
        if self._look is not None and self._clock.monotonic() >= self._look_at:
            with suppress(Exception):  # a failure to show progress must not end the step
                self._look(self)
            self._look_at = self._clock.monotonic() + LOOK

    def _draw(self) -> None:
        text = "".join(char if char.isprintable() else " " for char in self._text())
        if not self._terminal:
            self._write(f"{self._name}: {text[:LONGEST].rstrip()}\n")
            return
        self._turn += 1
        line = f"{WHEEL[self._turn % len(WHEEL)]} {text}"
        self._write(CLEAR + line[: shutil.get_terminal_size().columns - 1])

    def _clear(self) -> None:
        if self._terminal:
            self._write(CLEAR)

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the step continues without a terminal
            self._stream.write(text)
            self._stream.flush()

    def _text(self) -> str:
        now = self._clock.monotonic()
        amounts = [] if self._done is None else self._amounts(self._done, now - self._counted)
        details = ", ".join(filter(None, (*amounts, self._note.strip())))
        return f"{self._step}, {(now - self._began) // 1000} s" + (f": {details}" if details else "")

    def _amounts(self, done: int, ms: int) -> list[str]:
        """Return the amount that is done, the rate, and the time left."""
        if self._total is None:
            amounts = [f"{done:,} {self._unit}"]
        else:
            share = f" ({100 * done // self._total} %)" if self._total else ""
            amounts = [f"{done:,} of {self._total:,} {self._unit}{share}"]
        if ms and (rate := 1000 * (done - self._first) / ms) > 0:
            amounts += [f"{rate:,.0f}/s"] if rate >= 1 else []
            if (left := ((self._total or 0) - done) / rate) > 0:
                amounts.append(f"{left:.0f} s left" if left < MINUTES else f"{left / 60:.0f} min left")
        return amounts
