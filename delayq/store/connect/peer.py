"""What is known here of one server: the scripts that it has got, and what its clock says.

A script whose answer is a promise gets a deadline by the clock of the server, after which it does nothing: when the caller
gives up, what was sent and is stuck on its way must not run any more, as behind newer calls. The server's clock is
compared with the monotonic one here, by what TIME says: before the first such script, and again before one that comes a
second later or more. What it said before counts no more then: it may have been set back since by so little that a slow
answer does not show it.
"""

from __future__ import annotations

from typing import Any, Final

import redis

from delayq.clock import Clock, SystemClock
from delayq.store.commands import Arg, Command, plain

__all__ = ["Peer", "late_by"]

#: How old what the clock of a server said may be, in ms.
ASK_EVERY: Final = 1_000


def late_by(error: Exception) -> int | None:
    """The server's time (Unix ms), if it refused a script because its deadline had passed: nothing ran."""
    word, _, time = str(error).partition(" ")
    return int(time) if isinstance(error, redis.exceptions.ResponseError) and word == "EXPIRED" else None


class Peer:
    """One server; `timeout` is how long a caller waits for each reply, in seconds."""

    def __init__(self, timeout: float, clock: Clock | None = None) -> None:
        self.loaded: set[str] = set()
        self._timeout = int(timeout * 1000)
        self._clock = clock if clock is not None else SystemClock()
        self._ahead: int | None = None  # by how many ms it is ahead of the clock here at least
        self._asked: int | None = None  # when it was asked what it answered last

    @property
    def stale(self) -> bool:
        """Whether its clock is to be asked before a script that has a deadline."""
        return self._asked is None or self._clock.monotonic() - self._asked >= ASK_EVERY

    def ask(self) -> Command[None]:
        """The question what its clock says."""
        sent = self._clock.monotonic()

        def read(reply: Any) -> None:
            seconds, micros = reply
            self.learn(int(seconds) * 1000 + int(micros) // 1000)
            self._asked = sent

        return plain("TIME", read=read)

    def learn(self, time: int) -> None:
        """Its clock said so (Unix ms), now or some time ago."""
        self._ahead = time - self._clock.monotonic() - 1

    def deadline(self) -> Arg:
        """Until when (by its clock) a script may run that is sent now; never later than the caller waits."""
        return "" if self._ahead is None else self._clock.monotonic() + self._timeout + self._ahead

    def forget(self) -> None:
        """A connection broke: the next one may lead to another server, which is asked before it gets a script.

        What the clock said stays: another thread may be about to send a script for which it has just asked.
        """
        self._asked = None
