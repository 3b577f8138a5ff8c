"""What a node says of itself, and which nodes queues are given to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from coordinator import REDIS_AWAY
from delayq.clock import Clock

__all__ = ["Entry", "Flaps", "Link", "decode", "encode", "taking_part"]

Reach = Literal["ok", "trouble", "lost"]

#: A node that lost its session, or was killed, so often within the span is left out for the hold (ms).
FLAPS: Final = 3
SPAN: Final = 60_000
HOLD: Final = 60_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A node's entry. `redis`: trouble at once when it is out of reach, lost when it has been so for 5 s.

    `clock`: the same when the node's clock is far behind that of Redis.
    """

    address: str = ""
    version: str = ""
    since: int = 0
    redis: Reach = "ok"
    clock: Reach = "ok"
    hold_until: int = 0


def encode(entry: Entry) -> bytes:
    """The bytes of the node's znode."""
    return msgspec.json.encode(entry)


def decode(data: bytes) -> Entry:
    """The entry; one that another version wrote and this one cannot read counts as that of a healthy node."""
    try:
        return msgspec.json.decode(data, type=Entry)
    except msgspec.DecodeError:
        return Entry()


def taking_part(entries: Mapping[str, Entry], now: int) -> frozenset[str]:
    """The nodes that queues are given to: all that live, but for those that would do worse than others.

    Left out: who lost Redis while another node reaches it, whose clock is behind while another's is right, and who comes
    and goes, until its hold has passed. None of these leaves nobody: if no node reaches Redis, or all are behind it, or
    all of them flap, it is nobody's own fault, and nothing moves.
    """
    usable = frozenset(entries)
    if any(entry.redis == "ok" for entry in entries.values()):
        usable = frozenset(name for name, entry in entries.items() if entry.redis != "lost")
    if any(entries[name].clock == "ok" for name in usable):
        usable = frozenset(name for name in usable if entries[name].clock != "lost")
    steady = frozenset(name for name in usable if entries[name].hold_until <= now)
    return steady or usable


class Link:
    """How well this node reaches Redis, or keeps its time, as it is told each round."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_at: int | None = None

    def tell(self, good: bool) -> None:
        """What the node's last round found."""
        if good:
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = self._clock.monotonic()

    @property
    def state(self) -> Reach:
        """Nothing changes hands for a short trouble; but that others have it too must be known before 5 s are over."""
        lost_at = self._lost_at
        if lost_at is None:
            return "ok"
        return "lost" if self._clock.monotonic() - lost_at >= REDIS_AWAY else "trouble"


class Flaps:
    """Counts the sessions that this node lost, and says until when it should be left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses: deque[int] = deque(maxlen=FLAPS)
        self.hold_until = 0

    def lost(self) -> None:
        """A session was lost."""
        now = self._clock.monotonic()
        self._losses.append(now)
        if len(self._losses) == FLAPS and now - self._losses[0] <= SPAN:
            self.hold_until = self._clock.now() + HOLD
