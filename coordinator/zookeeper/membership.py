"""The state that a node publishes, and which nodes get queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from coordinator import REDIS_AWAY
from delayq.base.clock import Clock

Reach = Literal["ok", "trouble", "lost"]

#: A node that lost its session or was killed FLAPS times within SPAN ms gets no queues for HOLD ms.
FLAPS: Final = 3
SPAN: Final = 60_000
HOLD: Final = 60_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A node's entry. `redis` is 'trouble' as soon as Redis is out of reach, and 'lost' after 5 s.

    `clock` is the same for a clock that is far behind that of Redis. `hold_until` is not 0 while the node should get no
    queues. The node itself sets it back to 0, so the clocks of other nodes have no effect. Its value (Unix ms) is for people.
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
    """Read an entry. If this version cannot read it, the node counts as healthy."""
    try:
        return msgspec.json.decode(data, type=Entry)
    except msgspec.DecodeError:
        return Entry()


def taking_part(entries: Mapping[str, Entry]) -> frozenset[str]:
    """The nodes that get queues: all live nodes, except those that would deliver worse than others.

    A node gets no queues in three cases:

    - It lost Redis, and another node reaches Redis.
    - Its clock is behind, and that of another node is right.
    - It lost its session, or was killed, several times, and another node did not.

    If a rule excludes all nodes, none is at fault. Then the rule does not apply, and no queue moves.

    The result depends only on the entries, so all nodes that read the same entries agree. If they did not, a node could
    release queues that no other node claims.
    """
    usable = frozenset(entries)
    if any(entry.redis == "ok" for entry in entries.values()):
        usable = frozenset(name for name, entry in entries.items() if entry.redis != "lost")
    if any(entries[name].clock == "ok" for name in usable):
        usable = frozenset(name for name in usable if entries[name].clock != "lost")
    steady = frozenset(name for name in usable if not entries[name].hold_until)
    return steady or usable


def fault_of(entry: Entry) -> str:
    """The reason, in words, why a node with this entry gets no queues."""
    if entry.redis == "lost":
        return "this node does not reach Redis"
    if entry.clock == "lost":
        return "the clock of this node is behind that of Redis"
    return "this node lost its session, or was killed, several times"


class Link:
    """Whether this node reaches Redis, or whether its clock is right; updated in each round.

    No queue moves because of a short trouble. But a node publishes it before 5 s are over, because other nodes may
    have the same trouble. Only recorded results count: a long round proves nothing. A lost link is 'ok' again after
    `steady` ms without trouble.
    """

    def __init__(self, clock: Clock, *, steady: int = 0) -> None:
        self.state: Reach = "ok"
        self._clock = clock
        self._steady = steady
        self._bad_since: int | None = None
        self._good_since: int | None = None

    def record(self, good: bool) -> None:
        """Record whether Redis answered, or the clock was right, in this round."""
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
    """Counts the sessions that this node lost, and decides how long the node should get no queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._losses: deque[int] = deque(maxlen=FLAPS)
        self._hold_until = 0
        self._ends = 0  # monotonic ms

    @property
    def hold_until(self) -> int:
        """The end (Unix ms) of the time in which the node gets no queues; 0 if it gets some."""
        return self._hold_until if self._clock.monotonic() < self._ends else 0

    def lost(self) -> None:
        """Count a lost session."""
        now = self._clock.monotonic()
        self._losses.append(now)
        if len(self._losses) == FLAPS and now - self._losses[0] <= SPAN:
            self._hold_until = self._clock.now() + HOLD
            self._ends = now + HOLD
