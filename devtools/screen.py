"""Where ./dev up speaks: a line in words for each event to people at a terminal, to anything else what the parts write."""

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

from delayq.progress import Progress
from delayq.terminal import visible
from devtools.sentences import sentence

__all__ = ["Screen"]

OWN: Final = "dev"
NAME_WIDTH: Final = len("ZooKeeper")
STYLES: Final = {"debug": "dim", "info": "", "warning": "yellow", "error": "red", "critical": "bold red"}
NOT_SAID: Final = ("event", "exception", "level", "timestamp")


class Screen:
    """Standard error, and what is told there. Its methods may be called from any thread; none raises.

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
        """Whether parts are to hand their lines over: they would take a terminal for a person."""
        return self._terminal

    def say(self, text: str, level: str = "warning") -> None:
        """A sentence of ./dev's own."""
        if self.in_words:
            self._tell(datetime.now().astimezone(), OWN, text, level)
        else:
            self._write(f"{OWN}: {text}\n")

    def relay(self, part: str, line: str) -> None:
        """A line that a part has written."""
        if not self.in_words:
            self._write(line)
            return
        try:
            fields: Any = json.loads(line)
            event, level = str(fields["event"]), str(fields["level"])
            at = datetime.fromisoformat(fields["timestamp"]).astimezone()
        except (ValueError, TypeError, KeyError):  # no event: something was printed
            self._tell(datetime.now().astimezone(), part, line.rstrip("\n"), "warning")
            return
        if level == "info" and self._stopping:
            return  # that it ends in order is one line, and `stopped` says it
        text = sentence(event, {name: value for name, value in fields.items() if name not in NOT_SAID})
        self._tell(at, part, "\n".join(filter(None, (text, fields.get("exception")))), level)

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[Progress]:
        """Show what is waited for while the block runs."""
        with Progress(what, name=OWN) as step:
            before, self._step = self._step, step
            try:
                yield step
            finally:
                self._step = before

    def stopping(self) -> None:
        """From now on everything ends."""
        self._stopping = True
        if self.in_words:
            self._write("\r")  # over the ^C that the terminal shows
        else:
            self.say("stopping")

    def stopped(self) -> None:
        """Everything has ended."""
        if self.in_words:
            self.say("everything is stopped, in order", "info")

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
    """If it is, the rest goes nowhere: what stays in a buffer would make the process fail when it ends."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            return  # this line is lost, and the next may not be: a full disk behind a pipe, say
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
