"""What the owner of a queue knows of its parked sets.

Nothing of it is certain: a reply may be lost, and Redis may go back in time. For the sets of topics it does not matter, as the
scripts look at these themselves. Behind a set of a route or a lane the owner parks messages with an ordering key. So it notes the
place of a message before it is parked, only an answer of Redis raises that place, and once a second the names are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from delayq.policies import NO_POLICIES, Policies
from delayq.store.commands import Head, Parked
from delayq.store.keys import ParkedSet

__all__ = ["ParkedSets"]

#: ms until the names of the sets of topics are read again, too.
READ_EVERY: Final = 10_000
#: A set that Redis has not described yet: everything counts as behind its earliest message. It counts as a small one, as most
#: sets are where there are many, and the first release describes the others.
_UNKNOWN: Final = Parked((-1, b""), 1)


class ParkedSets:
    """The parked sets of one queue by name (`ParkedSet`), as Redis described them last; the one that is looked at next stands
    first. The sets of paused topics are not here.

    `has_sender` is false for sets of which no sender takes anything: of routes that are gone, say.
    """

    def __init__(self, has_sender: Callable[[str], bool]) -> None:
        self._has_sender = has_sender
        self._sets: dict[str, Parked] = {}
        self._policies = NO_POLICIES
        self._read_at: int | None = None  # monotonic ms; None: some sets of topics are not known
        self._emptied: dict[str, None] = {}
        self.changed = False  # since messages were last released

    def __contains__(self, name: str) -> bool:
        return name in self._sets

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def count(self, name: str) -> int:
        """How many tickets stand in a set, as far as is known."""
        return self._sets[name].count

    def head(self, name: str) -> Head:
        """A place before which nothing stands in a set, as far as is known."""
        return self._sets[name].head or (-1, b"")

    def first(self, most: int) -> list[str]:
        """At most so many sets, in the order in which they are looked at."""
        return list(islice(self._sets, most))

    def to_end(self, name: str) -> None:
        """Look at the other sets before this one."""
        self._sets[name] = self._sets.pop(name)

    def holds_up(self, name: str, place: Head) -> bool:
        """Whether something that comes before this place may be parked there. A ticket that the message itself had before it was
        delivered now does not count."""
        if name not in self._sets:
            return False
        due, ticket = self.head(name)
        return (place[0], place[1][:-8]) > (due, ticket[:-8])

    def expect(self, name: str, place: Head) -> None:
        """A message with this place is about to be parked there."""
        known = self._sets.get(name)
        self._sets[name] = Parked(place, 1) if known is None else Parked(min(self.head(name), place), known.count)

    def describe(self, name: str, now: Parked) -> None:
        """Redis describes a set."""
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
        """Whether the names of the sets of topics are to be read, too."""
        return self._read_at is None or now - self._read_at >= READ_EVERY

    def read(self, names: Iterable[str], now: int, *, every: bool, pending: Collection[str] = ()) -> None:
        """The names of the parked sets that Redis has, with those of topics (`every`) or without; `pending` are those where
        something is yet to be parked."""
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

    # -- what nobody sends -------------------------------------------------------------------------------------------

    def empty(self, name: str) -> None:
        """Move all that is parked there into the sets of its topics: another sender may take it, or its stream here."""
        if name in self._sets:
            self._emptied[name] = None

    @property
    def emptied(self) -> list[str]:
        """The sets that are being emptied. Nothing is pulled meanwhile: it would overtake what they hold."""
        return [name for name in self._emptied if name in self._sets]
