"""What the owner of a queue knows of the parked sets of its routes and lanes (`HeldTopics` has those of topics): of each a place
before which nothing stands in it, and how many did.

Nothing of it is certain: a reply may be lost, and Redis may go back in time. So the place is noted before anything is
parked, only what Redis says raises it, and once a second the names are compared with those that Redis has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from delayq.store.commands import Head, Parked

__all__ = ["ParkedSets", "follows"]

#: The place of a set that was not looked at yet: everything counts as behind it.
_UNKNOWN: Head = (-1, b"")


def follows(place: Head, other: Head) -> bool:
    """Whether a place is behind that of another message: a set may be known to begin with a ticket that the message itself had
    before somebody had it delivered now."""
    return (place[0], place[1][:-8]) > (other[0], other[1][:-8])


class _Set:
    """Nothing stands in the set before `head`. When Redis described it, it began at `first` and held `count` tickets; until then
    these are None and 0."""

    __slots__ = ("count", "first", "head", "looked", "new")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.first: Head | None = None
        self.count = 0
        self.new = True  # noted or told since the names were asked for last
        self.looked: int | None = None  # monotonic ms


class ParkedSets:
    """The parked sets of one queue, but for those of topics, by name (`ParkedSet`)."""

    def __init__(self) -> None:
        self._sets: dict[str, _Set] = {}
        self._wanted: dict[str, None] = {}  # in the order in which they became so

    def __contains__(self, name: str) -> bool:
        return name in self._sets

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def count(self, name: str) -> int:
        """How many tickets stood in a set when Redis described it last; 0 if it has not yet."""
        known = self._sets.get(name)
        return known.count if known is not None else 0

    def holds_up(self, name: str, place: Head) -> bool:
        """Whether something that comes before this place may be parked there."""
        known = self._sets.get(name)
        return known is not None and follows(place, known.head)

    def expect(self, name: str, place: Head) -> None:
        """A message with this place is about to be parked there."""
        known = self._sets.get(name)
        if known is None:
            self._sets[name] = _Set(place)
        else:
            known.head = min(known.head, place)
            known.new = True

    def observe(self, name: str, answer: Parked, *, moved: bool = False) -> int | None:
        """Take in what a set is like, which the answer tells behind a call that may have `moved` some of it into the queue.

        Returns from which due on some of it may stand in the queue again. A set that begins later than it did has lost its
        first message to a cancel, or to somebody who had it delivered now.
        """
        known = self._sets.pop(name, None)
        if answer.head is not None:
            self._sets[name] = now = _Set(answer.head)
            now.first, now.count = answer.head, answer.count
            now.looked = known.looked if known is not None else None
        else:
            self._wanted.pop(name, None)
        if known is None:
            return None
        lost_first = known.first is not None and (answer.head is None or answer.head > known.first)
        return known.head[0] if moved or lost_first else None

    def to_look_at(self, now: int, every: int, most: int) -> list[str]:
        """Sets that Redis has not described yet, or that were not looked at for so long (ms); now they are."""
        found = []
        for name, known in self._sets.items():
            if known.looked is None:
                known.looked = now
            if not known.count or now - known.looked >= every:
                known.looked = now
                found.append(name)
                if len(found) == most:
                    break
        return found

    def look_again(self, name: str) -> None:
        """There may be more to be found in a set that was looked at."""
        if name in self._sets:
            self._sets[name].looked = 0

    # -- what is to come back ----------------------------------------------------------------------------------------

    def want(self, name: str) -> None:
        """Some of the set is to come back."""
        if name in self._sets:
            self._wanted[name] = None

    def wanted(self, most: int) -> list[str]:
        """At most so many of the sets of which some is to come back; they are not wanted any more."""
        names = list(self._wanted)[:most]
        for name in names:
            del self._wanted[name]
        return names

    # -- what Redis has ----------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """The names are about to be asked for."""
        for known in self._sets.values():
            known.new = False

    def observe_names(self, names: Iterable[str], pending: Collection[str] = ()) -> int | None:
        """Take in the names that Redis has; `pending` are those where something is yet to be parked.

        Returns from which due on messages may stand in the queue again whose set has gone.
        """
        listed = dict.fromkeys(names)
        back = None
        for name, known in list(self._sets.items()):
            if name not in listed and name not in pending and not known.new:
                del self._sets[name]
                self._wanted.pop(name, None)
                back = known.head[0] if back is None else min(back, known.head[0])
        for name in listed:
            self._sets.setdefault(name, _Set(_UNKNOWN))
        return back
