"""The output of ./dev up: one sentence for each event on a terminal, and the unchanged lines of the parts elsewhere."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from delayq.base.progress import Progress
from delayq.base.terminal import visible
from devtools.sentences import sentence

OWN: Final = "dev"
NAME_WIDTH: Final = len("ZooKeeper")
STYLES: Final = {"debug": "dim", "info": "", "warning": "yellow", "error": "red", "critical": "bold red"}
NOT_SAID: Final = ("event", "exception", "level", "timestamp")


class Screen:
    """Standard error of ./dev up. Its methods may be called from any thread, and never raise.

    `in_words`: a person reads it. Otherwise the lines of the parts stay as they are: JSON.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._terminal = sys.stderr.isatty()
        self.in_words = self._terminal and not json
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._stopping = False
        self._step: Progress | None = None

    @property
    def takes_lines(self) -> bool:
        """Return whether parts write through this screen. Otherwise they would take a terminal for a person."""
        return self._terminal

    def say(self, text: str, level: str = "warning") -> None:
        """Print a sentence of ./dev itself."""
        if self.in_words:
            self._tell(datetime.now().astimezone(), OWN, text, level)
        else:
            self._write(f"{OWN}: {text}\n")

    def relay(self, part: str, line: str) -> None:
        """Print a line that a part has written."""
        if not self.in_words:
            self._write(line)
            return
        try:
            fields: Any = json.loads(line)
            event, level = str(fields["event"]), str(fields["level"])
            at = datetime.fromisoformat(fields["timestamp"]).astimezone()
        except (ValueError, TypeError, KeyError):  # not an event, but other output
            self._tell(datetime.now().astimezone(), part, line.rstrip("\n"), "warning")
            return
        if level == "info" and self._stopping:
            return  # the end in order is one line, which `stopped` prints
        text = sentence(event, {name: value for name, value in fields.items() if name not in NOT_SAID})
        self._tell(at, part, "\n".join(filter(None, (text, fields.get("exception")))), level)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[Progress]:
        """Show the current step while the block runs."""
        with Progress(what, name=OWN) as step:
            before, self._step = self._step, step
            try:
                yield step
            finally:
                self._step = before

    def stopping(self) -> None:
        """Report that everything is stopping."""
        self._stopping = True
        if self.in_words:
            self._write("\r")  # over the ^C that the terminal shows
        else:
            self.say("stopping")

    def stopped(self) -> None:
        """Report that everything has stopped."""
        if self.in_words:
            self.say("everything stopped in order", "info")

    def _tell(self, at: datetime, part: str, text: str, level: str) -> None:
        first, *more = text.split("\n")
        line = Text.assemble(
            (f"{at:%H:%M:%S}", "dim"), "  ", (f"{part:<{NAME_WIDTH}}", "cyan"), "  ",
            (visible(first), STYLES.get(level, "")),
        )  # fmt: skip
        for one in more:
            line.append(f"\n    {visible(one)}", "dim")
        with self._above_the_step(), _terminal_may_be_gone():
            self._console.print(line, soft_wrap=True)

    def _above_the_step(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._step is None else self._step.hidden()

    def _write(self, text: str) -> None:
        with self._above_the_step(), _terminal_may_be_gone():
            sys.stderr.write(text)
            sys.stderr.flush()


@contextlib.contextmanager
def _terminal_may_be_gone() -> Iterator[None]:
    """Discard the rest of the output: text left in a buffer would make the process fail when it ends."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            return  # this line is lost, but the next one may succeed: a full disk behind a pipe, for example
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
