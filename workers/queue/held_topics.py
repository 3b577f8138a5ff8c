"""The sets of topics whose messages the owner of a queue has to bring back, as Redis described them last.

Pulls put messages into the set of a topic that is paused, or whose set is not empty, and decide so by what Redis has. What is
known here only decides when messages come back. While a topic is paused, nothing of its set is known here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from delayq.policies import NO_POLICIES, Policies
from delayq.store.commands import Head, Parked
from delayq.store.keys import ParkedSet

__all__ = ["HeldTopics"]

#: ms until the names of all sets are read again: a Redis that went back in time may have one that is not known.
READ_EVERY: Final = 10_000
#: A set that Redis has not described yet counts as one with a single message, which is due: most sets are small where there are
#: many, and the first release describes the others.
UNKNOWN: Final = Parked((0, b""), 1)


class HeldTopics:
    """By topic, what its set is like; the one that comes back next stands first."""

    def __init__(self) -> None:
        self._sets: dict[str, Parked] = {}
        self._policies = NO_POLICIES
        self.changed = False  # since messages were last released
        self._read_at: int | None = None  # monotonic ms; None: some are not known

    def __len__(self) -> int:
        return len(self._sets)

    def count(self, topic: str) -> int:
        """How many tickets stand in its set, as far as is known."""
        return self._sets[topic].count

    def head(self, topic: str) -> Head:
        """The place of the earliest message in its set, as far as is known."""
        return self._sets[topic].head or (0, b"")

    def first(self, most: int) -> list[str]:
        """At most so many topics, in the order in which they come back."""
        return list(islice(self._sets, most))

    def to_end(self, topic: str) -> None:
        """Let the other topics come back before this one."""
        self._sets[topic] = self._sets.pop(topic)

    def describe(self, topic: str, now: Parked) -> None:
        """Redis describes the set of a topic."""
        if now.head is None or self._policies.pause(topic) is not None:
            self._sets.pop(topic, None)
        else:
            self._sets[topic] = now
            self.changed = True

    def observe_policies(self, policies: Policies) -> None:
        """Forget the sets of topics that these policies pause, and read the names of all sets again if a pause has ended."""
        if not set(self._policies.pauses) <= set(policies.pauses):
            self.read_again()
        self._policies = policies
        if policies.pauses:
            self._sets = {topic: known for topic, known in self._sets.items() if policies.pause(topic) is None}

    def read_again(self) -> None:
        """Read the names of all sets at the next pull, as some may not be known."""
        self._read_at = None

    def to_read(self, now: int) -> bool:
        """Whether the names of all sets are to be read."""
        return self._read_at is None or now - self._read_at >= READ_EVERY

    def read(self, names: Iterable[str], now: int) -> None:
        """The names of all parked sets that Redis has."""
        self._read_at = now
        found = {
            topic for name in names if ParkedSet.is_of_topic(name) and (topic := ParkedSet.topic(name)) is not None
        }
        self._sets = {topic: known for topic, known in self._sets.items() if topic in found}
        for topic in found:
            if topic not in self._sets and self._policies.pause(topic) is None:
                self._sets[topic] = UNKNOWN
                self.changed = True
