"""The census of one queue: its owner reads through the pool, one slice beside a pull now and then, and counts messages by topic.

Nobody waits for the census, and deliveries must not notice it. So slices are few and small, over all queues of a node, and none
is taken while a backlog drains. The counts are in memory until the whole pool was read; another owner begins anew.
"""

from __future__ import annotations

import threading
from typing import Final

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.commands import REST, Census, Command, Now, Slice, Tally
from delayq.store.keys import QueueKeys

__all__ = ["CensusTaker", "Pace"]

#: ms between two slices of a queue. A queue is pulled at least once a second.
EVERY: Final = 900
#: After the whole pool was read there is a pause, TIMES as long as that took, within these ms: so the census costs little.
TIMES: Final = 20
PAUSE: Final = (60_000, 300_000)
#: Messages of a slice, at least and at most, and the bytes that they should come to: Redis does nothing else meanwhile.
LOOK: Final = (8, 200)
LOOK_BYTES: Final = 256 * 1024
#: Topics that are counted one by one.
MOST_TOPICS: Final = 2_000


class Pace:
    """A bound for all queues of a node: at most `rate` slices a second, each of which costs less than 1 ms."""

    def __init__(self, clock: Clock, rate: int = 10) -> None:
        self._clock = clock
        self._rate = rate
        self._left = float(rate)
        self._at = clock.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether a slice may be taken now."""
        with self._lock:
            now = self._clock.monotonic()
            self._left = min(self._rate, self._left + (now - self._at) * self._rate / 1_000)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class CensusTaker:
    """Takes the census of a queue again and again. Without a `pace` it takes none."""

    def __init__(self, keys: QueueKeys, epoch: str, clock: Clock, pace: Pace | None) -> None:
        self._keys = keys
        self._epoch = epoch
        self._clock = clock
        self._pace = pace
        self._at = clock.monotonic() + EVERY
        self._look = LOOK[0]  # messages, by the size of the last ones
        self._kept: bool | None = None  # whether the last census that was kept had any messages
        self._begin()

    def _begin(self) -> None:
        self._cursor = "0"
        self._began_at = 0  # monotonic ms
        self._began: int | None = None
        self._version = ""
        self._topics: dict[str, dict[str, Tally]] = {}
        self._ended = False

    def ask(self, now: Now = "", version: str = "") -> Command[Slice] | Command[bool] | None:
        """The command of the next slice, beside a pull by this version of the policies, if it is time for one."""
        monotonic = self._clock.monotonic()
        if self._pace is None or monotonic < self._at or not self._pace.take():
            return None
        self._at = monotonic + EVERY
        if self._ended and self._began is not None:
            return commands.keep_census(self._keys, self._epoch, Census(self._began, self._topics, self._version))
        if self._began is None:
            self._began_at, self._version = monotonic, version
        return commands.census_slice(self._keys, self._cursor, self._look, self._began, now=now)

    def take(self, answer: Slice | bool | StoreError) -> None:
        """Count the messages of a slice. After an error the same slice is asked for again."""
        if isinstance(answer, Slice):
            self._add(answer)
            if not self._ended or self._topics or self._kept is not False:
                return
        elif isinstance(answer, StoreError):
            return
        else:
            self._kept = bool(self._topics)
        now, (shortest, longest) = self._clock.monotonic(), PAUSE
        self._at = now + min(max(TIMES * (now - self._began_at), shortest), longest)
        self._begin()

    def _add(self, counted: Slice) -> None:
        self._began = counted.now if self._began is None else self._began
        size = 0
        for topic, state, *counts in counted.groups:
            if topic not in self._topics and len(self._topics) >= MOST_TOPICS:
                topic = REST
            self._topics.setdefault(topic, {}).setdefault(state, Tally()).add(*counts)
            size += counts[2]
        self._cursor, self._ended = counted.cursor, counted.cursor == "0"
        self._look = min(max(LOOK_BYTES * counted.looked // max(1, size), LOOK[0]), LOOK[1], 4 * self._look)
