"""The state that a node publishes, and which nodes get queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from coordinator import REDIS_AWAY
from delayq.clock import Clock

__all__ = ["Entry", "Flaps", "Link", "decode", "encode", "fault_of", "taking_part"]

Reach = Literal["ok", "trouble", "lost"]

#: A node that lost its session, or was killed, so often within the span is left out for the hold (ms).
FLAPS: Final = 3
SPAN: Final = 60_000
HOLD: Final = 60_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A node's entry. `redis`: trouble at once when it is out of reach, lost when it has been so for 5 s.

    `clock`: the same when the node's clock is far behind that of Redis. `hold_until` (Unix ms) is for people; the node
    itself says by it that it comes and goes, and puts 0 there when that is over. So the clocks of others do not matter.
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


def taking_part(entries: Mapping[str, Entry]) -> frozenset[str]:
    """The nodes that get queues: all that live, except those that would do worse than others.

    Left out: who lost Redis while another node reaches it, whose clock is behind while another's is right, and who comes
    and goes, until its hold has passed. None of these leaves nobody: if no node reaches Redis, or all are behind it, or
    all of them flap, it is nobody's own fault, and nothing moves.

    It goes by the entries alone, so that all who read the same are of one mind. If they were not, a node would give
    queues up to one that does not want them.
    """
    usable = frozenset(entries)
    if any(entry.redis == "ok" for entry in entries.values()):
        usable = frozenset(name for name, entry in entries.items() if entry.redis != "lost")
    if any(entries[name].clock == "ok" for name in usable):
        usable = frozenset(name for name in usable if entries[name].clock != "lost")
    steady = frozenset(name for name in usable if not entries[name].hold_until)
    return steady or usable


def fault_of(entry: Entry) -> str:
    """Why a node with this entry gets no queues, in words."""
    if entry.redis == "lost":
        return "this node does not reach Redis"
    if entry.clock == "lost":
        return "the clock of this node is behind that of Redis"
    return "this node comes and goes"


class Link:
    """How well this node reaches Redis or keeps its time, updated each round.

    Nothing changes hands for a short trouble; but that others have it too must be known before 5 s are over. Only what
    is told counts: a round that takes long proves nothing. What was lost is right again after `steady` ms of it.
    """

    def __init__(self, clock: Clock, *, steady: int = 0) -> None:
        self.state: Reach = "ok"
        self._clock = clock
        self._steady = steady
        self._bad_since: int | None = None
        self._good_since: int | None = None

    def tell(self, good: bool) -> None:
        """Note whether Redis answered, or the clock was right, in this round."""
        now = self._clock.monotonic()
        if good:
            self._bad_since = None
            self._good_since = now if self._good_since is None else self._good_since
            if self.state != "lost" or now - self._good_since >= self._steady:
                self.state = "ok"
        else:
            self._good_since = None
            self._bad_since = now if self._bad_since is None else self._bad_since
            if self.state != "lost":
                self.state = "lost" if now - self._bad_since >= REDIS_AWAY else "trouble"


class Flaps:
    """Counts the sessions that this node lost, and computes until when it should get no queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses: deque[int] = deque(maxlen=FLAPS)
        self._hold_until = 0
        self._ends = 0  # monotonic ms

    @property
    def hold_until(self) -> int:
        """Until when the node gets no queues, Unix ms; 0 if it gets some."""
        return self._hold_until if self._clock.monotonic() < self._ends else 0

    def lost(self) -> None:
        """Count a lost session."""
        now = self._clock.monotonic()
        self._losses.append(now)
        if len(self._losses) == FLAPS and now - self._losses[0] <= SPAN:
            self._hold_until = self._clock.now() + HOLD
            self._ends = now + HOLD
