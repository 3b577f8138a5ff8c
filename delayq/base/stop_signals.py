"""The signals that ask a process to stop, in one place for services, commands and `./dev up`.

SIGINT and SIGTERM stop a process in order, and so do SIGHUP (its terminal was closed) and SIGQUIT. If SIGHUP was ignored at
the start, as nohup does, it stays ignored. SIGUSR1 and SIGUSR2 mean nothing here and are ignored: by default they would end
the process in the middle of its work.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
HARMLESS: Final = (signal.SIGUSR1, signal.SIGUSR2)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to stop during a wait that ends at once. Code that handles Ctrl-C handles it, too."""


class StopSignals:
    """Notes the first signal that asks the process to stop, and then calls a function or ends a wait. For the main thread."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._stop: Callable[[], object] | None = None
        self._waits = 0

    def listen(self) -> None:
        """Handle the signals from now on, even if SIGINT was inherited as ignored. Services call this before their imports."""
        self._waits = 0
        self._install(STOPPING)

    def listen_beside_ctrl_c(self) -> None:
        """Handle the other signals as Python handles Ctrl-C, for a command. SIGINT stays as it was inherited."""
        self._waits += 1
        self._install(STOPPING[1:])

    def _install(self, numbers: tuple[signal.Signals, ...]) -> None:
        for number in numbers:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._caught)
        for number in HARMLESS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.SIG_IGN)

    def call(self, stop: Callable[[], object]) -> None:
        """Call `stop` for each of the signals from now on, and at once if one came before. It runs between any two steps."""
        self._stop = stop
        if self.asked is not None:
            stop()

    @contextmanager
    def calling(self, stop: Callable[[], object]) -> Iterator[None]:
        """The same meanwhile."""
        before = self._stop
        try:
            self.call(stop)
            yield
        finally:
            self._stop = before

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Meanwhile raise Stopped at the first of the signals, and at once if one came before: nothing has to be finished."""
        self._waits += 1
        try:
            if self.asked is not None:
                raise Stopped
            yield
        finally:
            self._waits -= 1

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        first, self.asked = self.asked is None, self.asked or signal.Signals(number)
        if self._stop is not None:
            self._stop()
        elif self._waits and first:
            raise Stopped


#: The signals of this process.
stop_signals: Final = StopSignals()
