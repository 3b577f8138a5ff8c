"""A node whose process is killed repeatedly gets no queues for a while, like a node that loses its sessions repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.zookeeper.membership import FLAPS, HOLD, SPAN
from coordinator.zookeeper.session import Session
from delayq.base.clock import Clock

#: Attempts to change the starts while other nodes change them, too.
LOOKS: Final = 10


class Starts:
    """Counts the starts of a node in a znode that outlives it. A node that stops in order removes its own."""

    def __init__(self, path: str, name: str, since: int, clock: Clock) -> None:
        self._path = path
        self._name = name
        self._since = since
        self._clock = clock
        self._ends = clock.monotonic() + HOLD
        self._hold_until: int | None = None

    def hold_until(self, session: Session) -> int:
        """The end (Unix ms) of the time in which the node gets no queues; 0 if it gets some."""
        if self._hold_until is None:
            self._hold_until = self._change(session, lambda data: count_start(data, self._name, self._since))
        return self._hold_until if self._clock.monotonic() < self._ends else 0

    def forget(self, session: Session) -> None:
        """Note that the node stops in order. If ZooKeeper is away, the stop counts as a kill."""
        with suppress(CoordinatorError):
            self._change(session, lambda data: (forget_starts(data, self._name, self._clock.now()), 0))

    def _change(self, session: Session, change: Callable[[bytes], tuple[bytes, int]]) -> int:
        """Replace the data by `change` of it, unless another node has changed it since it was read."""
        for _ in range(LOOKS):
            known = session.read([self._path]).get(self._path)
            data, answer = change(known.data if known is not None else b"")
            if session.keep(self._path, data, known):
                return answer
        raise CoordinatorError(f"{self._path} is changed by other nodes all the time")


def count_start(data: bytes, name: str, since: int) -> tuple[bytes, int]:
    """Add a start to those of all nodes. Return them, and the end of the time without queues (0: the node gets some)."""
    starts = _decode(data, since)
    mine = sorted({*starts.get(name, ()), since})[-FLAPS - 1 :]
    return msgspec.json.encode(starts | {name: mine}), since + HOLD if len(mine) > FLAPS else 0


def forget_starts(data: bytes, name: str, now: int) -> bytes:
    """Return the starts of the other nodes."""
    return msgspec.json.encode({other: kept for other, kept in _decode(data, now).items() if other != name})


def _decode(data: bytes, now: int) -> dict[str, list[int]]:
    """Read the starts of each node within SPAN."""
    try:
        found = msgspec.json.decode(data, type=dict[str, list[int]])
    except msgspec.DecodeError:
        return {}
    recent = {name: [start for start in starts if now - start <= SPAN] for name, starts in found.items()}
    return {name: starts for name, starts in recent.items() if starts}
