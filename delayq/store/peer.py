"""What is known here of one server: the scripts that it has got, and what its clock says.

A script whose answer is a promise gets a deadline by the clock of the server, after which it does nothing: when the caller
gives up, what was sent and is stuck on its way must not run any more, as behind newer calls. The server's clock is
compared with the monotonic one here, by what TIME says: before the first such script, and every second along with one.
"""

from __future__ import annotations

from typing import Any, Final

import redis

from delayq.clock import Clock, SystemClock
from delayq.store.commands import Arg, Command, plain

__all__ = ["Peer", "late_by"]

#: A clock that was set back makes deadlines too late for no longer than this, in ms.
ASK_EVERY: Final = 1_000
_ANY: Final = 2**63


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
        self._ahead: tuple[int, int] | None = None  # by how many ms it is ahead of the clock here: at least, at most
        self._asked: int | None = None

    @property
    def known(self) -> bool:
        """Whether it is known what its clock says."""
        return self._ahead is not None

    @property
    def stale(self) -> bool:
        """Whether its clock is to be asked before a script that has a deadline."""
        return self._asked is None or self._clock.monotonic() - self._asked >= ASK_EVERY

    def ask(self) -> Command[None]:
        """The question what its clock says."""
        sent = self._asked = self._clock.monotonic()

        def read(reply: Any) -> None:
            seconds, micros = reply
            self.learn(int(seconds) * 1000 + int(micros) // 1000, sent)

        return plain("TIME", read=read)

    def learn(self, time: int, sent: int | None = None) -> None:
        """Its clock said so after `sent`, by the clock here. What does not fit shows that one of the clocks stepped."""
        ahead = time - self._clock.monotonic() - 1, _ANY if sent is None else time + 1 - sent
        if self._ahead is not None:
            both = max(ahead[0], self._ahead[0]), min(ahead[1], self._ahead[1])
            if both[0] <= both[1]:
                ahead = both
        self._ahead = ahead

    def deadline(self) -> Arg:
        """Until when (by its clock) a script may run that is sent now; never later than the caller waits."""
        return "" if self._ahead is None else self._clock.monotonic() + self._timeout + self._ahead[0]

    def forget(self) -> None:
        """A connection broke: the next one may lead to another server."""
        self._ahead = self._asked = None
