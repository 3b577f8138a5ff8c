"""What the owner of a queue knows of its held sets, in which messages of paused or limited topics stand: what follows a held
message under its ordering key, to the same target, waits behind it, also when its own topic goes on.

So for each held set it is known up to where it holds something of a lane. A set that was there before its owner has its lanes
read, a page at a time; until that has come to its end all that has an ordering key waits behind the set. They are read anew
now and then while something waits: what it waits for may have been cancelled.
Of streams in the same Redis no lanes are known: there all that has an ordering key waits behind what is held for its stream. So
one that was delivered by force is held, too, until it is the first of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from delayq.routes import Route, Routes
from delayq.store.commands import Head, LanesPage
from delayq.store.keys import ParkedSet
from workers.queue.parked_sets import ParkedSets, follows

__all__ = ["HeldSets"]

#: ms after which the lanes of a set are read anew while something waits behind it.
READ_EVERY: Final = 60_000
#: Lanes of a set from which on those are forgotten that have left it, each time that they have doubled.
SWEEP_FROM: Final = 1_000
_Lanes = dict[str, tuple[Head, Head]]  # of each the first and the last place that the set holds of it


class _Follower(Protocol):
    """A message that may have to wait."""

    route: Route | None
    by_force: bool  # somebody has it delivered in spite of what holds it

    @property
    def place(self) -> Head:
        """Its place in the queue."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def ordering_key(self) -> str:
        """'' for none."""


class _Set(msgspec.Struct):
    """`reading` are the lanes found so far while they are read, up to `upto`; `known` is whether they ever were."""

    route: str
    stream: str | None  # in the same Redis
    lanes: _Lanes
    known: bool
    reading: _Lanes | None = None
    upto: Head | None = None
    read_at: int = 0  # monotonic ms
    awaited: bool = False  # something waits behind it
    forced: set[Head] = msgspec.field(default_factory=set)  # the places of what goes by force once it is the first
    sweep_at: int = SWEEP_FROM


class HeldSets:
    """The held sets among the `parked` ones; `targets` are the routes that have one."""

    def __init__(self, parked: ParkedSets, routes: Routes, targets: Mapping[str, object]) -> None:
        self._parked = parked
        self._routes = routes
        self._targets = targets
        self._sets: dict[str, _Set] = {}

    def __bool__(self) -> bool:
        return bool(self._sets)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def sync(self) -> None:
        """Take in which sets there are: those that nobody here has filled have lanes that are not known."""
        for name in [name for name in self._sets if name not in self._parked]:
            del self._sets[name]
        for name in self._parked.held:
            if name not in self._sets:
                self._sets[name] = self._made(name, known=False)

    def _made(self, name: str, *, known: bool) -> _Set:
        route = self._routes.find(name[2:])
        if route is None:
            return _Set("", None, {}, True)
        stream = None if route.name in self._targets else route.stream_of(name[2:])
        return _Set(route.name, stream, {}, known or stream is not None)

    # -- what stands there -------------------------------------------------------------------------------------------

    def remember(self, name: str, message: _Follower) -> None:
        """A message is about to be set aside under this name."""
        one = self._sets.get(name)
        if one is None:
            one = self._sets[name] = self._made(name, known=True)
        if one.stream is not None:
            (one.forced.add if message.by_force else one.forced.discard)(message.place)
        elif message.ordering_key:
            lane = ParkedSet.of_lane(one.route, message.ordering_key)
            for lanes in (one.lanes, one.reading):
                if lanes is not None:
                    _stretch(lanes, lane, message.place)
            if len(one.lanes) >= one.sweep_at and (head := self._parked.head(name)) is not None:
                one.lanes = {lane: span for lane, span in one.lanes.items() if span[1] >= head}
                one.sweep_at = 2 * len(one.lanes) + SWEEP_FROM

    def forget(self, name: str) -> None:
        """Redis says that nothing stands there."""
        self._sets.pop(name, None)

    def look_again(self, name: str) -> None:
        """Something was taken out of it by hand: what is known of it is older."""
        if name in self._sets:
            self._parked.look_again(name)
            self._sets[name].read_at = -READ_EVERY

    # -- who waits ---------------------------------------------------------------------------------------------------

    def holds_back(self, message: _Follower) -> bool:
        """Whether a message with an ordering key follows one of its lane that is held, or that may be."""
        assert message.route is not None
        lane = ParkedSet.of_lane(message.route.name, message.ordering_key)
        return self.holds_lane(message.route.name, lane, message.place)

    def holds_lane(self, route: str, lane: str, place: Head) -> bool:
        """Whether what stands at this place of a lane has to wait."""
        for name, one in self._sets.items():
            if one.route != route or one.stream is not None or (head := self._parked.head(name)) is None:
                continue
            span = one.lanes.get(lane)
            behind = span is not None and head <= span[1] and follows(place, max(head, span[0]))
            if behind or (not one.known and follows(place, head)):
                one.awaited = True
                return True
        return False

    def to_end(self, name: str) -> None:
        """It had its turn: the others come first."""
        self._sets[name] = self._sets.pop(name)

    def stream(self, name: str) -> str | None:
        """The stream in this Redis for which a set holds messages."""
        return self._sets[name].stream

    def streams(self, names: Iterable[str]) -> dict[str, Head]:
        """The streams in this Redis for which something is held under these names, each with the first place of it."""
        found: dict[str, Head] = {}
        for name in names:
            stream, head = self._sets[name].stream, self._parked.head(name)
            if stream is not None and head is not None:
                found[stream] = min(found.get(stream, head), head)
        return found

    def first_by_force(self) -> Iterator[str]:
        """The names of those whose first message goes into its stream by force: nothing that is held for that is before it."""
        for name, one in self._sets.items():
            if not one.forced or one.stream is None or (head := self._parked.head(name)) is None:
                continue
            one.forced = {place for place in one.forced if place >= head}
            if head in one.forced and self.streams(self._sets)[one.stream] == head:
                yield name

    # -- reading the lanes -------------------------------------------------------------------------------------------

    def to_read(self, now: int) -> tuple[str, Head | None] | None:
        """A set of which a page of the lanes is to be read now, and behind which place it begins."""
        for name, one in self._sets.items():
            if one.stream is not None:
                continue
            if one.reading is None and (not one.known or (one.awaited and now - one.read_at >= READ_EVERY)):
                one.reading, one.upto, one.awaited = {}, None, False
            if one.reading is not None:
                return name, one.upto
        return None

    def read(self, name: str, page: LanesPage, now: int) -> None:
        """A page has come."""
        one = self._sets.get(name)
        if one is None or one.reading is None:
            return
        for place, ordering_key in page.entries:
            if ordering_key:
                _stretch(one.reading, ParkedSet.of_lane(one.route, ordering_key), place)
        one.upto = page.after
        if page.after is None:
            one.lanes, one.reading, one.known, one.read_at = one.reading, None, True, now


def _stretch(lanes: _Lanes, lane: str, place: Head) -> None:
    first, last = lanes.get(lane, (place, place))
    lanes[lane] = min(first, place), max(last, place)
