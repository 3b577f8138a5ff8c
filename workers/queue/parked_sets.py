"""The parked sets of a queue, as its owner knows them.

This knowledge may be wrong: a reply may be lost, and Redis may go back in time. That does not matter for the sets of topics,
because the scripts read these themselves. But messages with an ordering key are parked behind those in the set of their route or
lane. So the place of a message is noted before it is parked, and only an answer of Redis raises it. Once a second the names
are compared with those in Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from delayq.domain.policies import NO_POLICIES, Policies
from delayq.store.commands import Head, Parked
from delayq.store.keys import ParkedSet

#: ms until the names of the sets of topics are read again, too.
READ_EVERY: Final = 10_000
#: A set that Redis has not described. All messages count as later than its earliest one. It counts as small, like most sets where
#: there are many. The first release describes the others.
_UNKNOWN: Final = Parked((-1, b""), 1)


class ParkedSets:
    """The parked sets of one queue by name (`ParkedSet`), without those of paused topics. The next one to check comes first.

    `has_sender` is false for sets without a sender, for example those of removed routes.
    """

    def __init__(self, has_sender: Callable[[str], bool]) -> None:
        self._has_sender = has_sender
        self._sets: dict[str, Parked] = {}
        self._policies = NO_POLICIES
        self._read_at: int | None = None  # monotonic ms; None: some sets of topics are not known
        self._emptied: dict[str, None] = {}
        self.changed = False  # whether a set has changed after the last release

    def __contains__(self, name: str) -> bool:
        return name in self._sets

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def count(self, name: str) -> int:
        """The known number of tickets in a set; from any thread."""
        known = self._sets.get(name)
        return 0 if known is None else known.count

    def head(self, name: str) -> Head:
        """The place of the earliest message in a set, or an earlier place."""
        return self._sets[name].head or (-1, b"")

    def first(self, most: int) -> list[str]:
        """The next sets to check, `most` at most."""
        return list(islice(self._sets, most))

    def to_end(self, name: str) -> None:
        """Check the other sets before this one."""
        self._sets[name] = self._sets.pop(name)

    def holds_up(self, name: str, place: Head) -> bool:
        """Whether a message before this place may be in a set. An earlier ticket of the same message does not count."""
        if name not in self._sets:
            return False
        due, ticket = self.head(name)
        return (place[0], place[1][:-8]) > (due, ticket[:-8])

    def expect(self, name: str, place: Head) -> None:
        """Note that a message with this place is about to be parked in a set."""
        known = self._sets.get(name)
        self._sets[name] = Parked(place, 1) if known is None else Parked(min(self.head(name), place), known.count)

    def describe(self, name: str, now: Parked) -> None:
        """Record the description of a set by Redis."""
        if now.head is None or self._is_paused(name):
            self._sets.pop(name, None)
            self._emptied.pop(name, None)
        else:
            self._sets[name] = now
            self.changed = True

    def _is_paused(self, name: str) -> bool:
        topic = ParkedSet.topic(name) if ParkedSet.is_of_topic(name) else None
        return topic is not None and self._policies.pause(topic) is not None

    def observe_policies(self, policies: Policies) -> None:
        """Forget the sets of topics that these policies pause, and read the names of all sets again if a pause has ended."""
        if not set(self._policies.pauses) <= set(policies.pauses):
            self.read_again()
        self._policies = policies
        if policies.pauses:
            self._sets = {name: known for name, known in self._sets.items() if not self._is_paused(name)}

    # -- the names that Redis has ------------------------------------------------------------------------------------

    def read_again(self) -> None:
        """Read the names of all sets at the next pull, as some may not be known."""
        self._read_at = None

    def reads_all(self, now: int) -> bool:
        """Whether the next read of names includes the sets of topics."""
        return self._read_at is None or now - self._read_at >= READ_EVERY

    def read(self, names: Iterable[str], now: int, *, every: bool, pending: Collection[str] = ()) -> None:
        """Record the names of the parked sets in Redis, which include those of topics with `every`.

        `pending` are sets that are about to get messages.
        """
        found = dict.fromkeys(names)
        if every:
            self._read_at = now
        self._sets = {
            name: known
            for name, known in self._sets.items()
            if name in found or name in pending or (ParkedSet.is_of_topic(name) and not every)
        }
        for name in found:
            if name not in self._sets and not self._is_paused(name):
                self._sets[name] = _UNKNOWN
                self.changed = True
                if not self._has_sender(name):
                    self.empty(name)

    # -- sets without a sender ---------------------------------------------------------------------------------------

    def empty(self, name: str) -> None:
        """Have all messages of a set moved into the sets of their topics, from where another sender or stream gets them."""
        if name in self._sets:
            self._emptied[name] = None

    @property
    def emptied(self) -> list[str]:
        """The sets that are being emptied. No pull is made meanwhile, because it would overtake their messages."""
        return [name for name in self._emptied if name in self._sets]
