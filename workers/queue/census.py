"""The census of one queue: its owner reads the pool in slices beside some of its pulls, and counts messages by topic.

A census must not delay deliveries. So slices are small, a node reads only a few of them, and none while a backlog drains. The
counts stay in memory until all slices have been read. A new owner starts again.
"""

from __future__ import annotations

from typing import Final

from delayq.base.clock import Clock
from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.commands import REST, Census, Command, Now, Slice, Tally
from delayq.store.keys import QueueKeys
from workers.queue.queue_context import Pace

#: ms between two slices of a queue. A queue is pulled at least once a second.
EVERY: Final = 900
#: The next census begins TIMES as long after this one as this one took, within these ms, so that it costs little.
TIMES: Final = 20
PAUSE: Final = (60_000, 300_000)
#: The fewest and the most messages of a slice, and their total bytes, because Redis does nothing else meanwhile.
LOOK: Final = (8, 200)
LOOK_BYTES: Final = 256 * 1024
#: Topics that are counted one by one.
MOST_TOPICS: Final = 2_000


class CensusTaker:
    """Takes one census of a queue after the other. Without a `pace` it takes none."""

    def __init__(self, keys: QueueKeys, epoch: str, clock: Clock, pace: Pace | None) -> None:
        self._keys = keys
        self._epoch = epoch
        self._clock = clock
        self._pace = pace
        self._at = clock.monotonic() + EVERY
        self._look = LOOK[0]  # messages of the next slice, by the size of the last ones
        self._kept: bool | None = None  # whether the last census in Redis has messages
        self._begin()

    def _begin(self) -> None:
        self._cursor = "0"
        self._began_at = 0  # monotonic ms
        self._began: int | None = None
        self._version = ""
        self._topics: dict[str, dict[str, Tally]] = {}
        self._ended = False

    def ask(self, now: Now = "", version: str = "") -> Command[Slice] | Command[bool] | None:
        """Return the command of the next slice, or None. `version` is that of the policies of the pull beside it."""
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
        """Count the messages of a slice. After an error the same slice is read again."""
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
