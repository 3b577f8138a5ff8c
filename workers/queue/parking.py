"""Brings parked messages back: of targets that take them again, of ordering keys with few in flight, of routes that are gone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from delayq.store import commands
from delayq.store.commands import Command, Parked
from delayq.store.keys import ParkedSet
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets
from workers.queue.queue_context import QueueContext
from workers.queue.topics import Refusals

__all__ = ["LOOK_EVERY", "Parking"]

RAMP_FROM, RAMP_TO = 16, 500
AT_ONCE = 8
LOWEST_FIRST = 3  # probes of the lowest before others are tried
LOOK_EVERY = 10_000  # ms between two looks at a set of which nothing may come back
_Name = str


class Parking:
    """How much of what is parked comes back in this tick; `names` are the parked sets at the claim."""

    def __init__(
        self,
        context: QueueContext,
        names: Sequence[_Name],
        parked: ParkedSets,
        refusals: Refusals,
        in_flight: InFlight,
    ) -> None:
        self._context = context
        self._parked = parked
        self._refusals = refusals
        self._in_flight = in_flight
        self._shares = {share.aside: share for share in in_flight.shares.values()}
        self._ramp: dict[_Name, int] = {}
        self._probed: dict[_Name, int] = {}  # how often since it was parked
        self._unrouted = ParkedSet.NO_ROUTE in names
        self.before_pulls = False  # pulls have to wait in this tick
        in_flight.observe_sets(names, every=True)

    def _all_return(self, name: _Name) -> bool:
        """Whether all of a set comes back at once, as no sender takes it: its stream, or perhaps another route. Pulls have to
        wait: newer ones would overtake what comes back for its stream, or from a lane of a former version, and what has no
        route now either would be parked again before all came back."""
        if ParkedSet.is_of_former_lane(name):
            return True
        if not ParkedSet.is_of_route(name) or name in self._shares:
            return False
        if name == ParkedSet.NO_ROUTE:
            return self._unrouted
        return not self._refusals.keep_parked(name)

    def commands(self) -> list[tuple[_Name, int, Command[Parked | None]]]:
        """What to run now, with the set and how many may come back of it (0: a look only)."""
        parked = self._parked
        self._refusals.forget_returned(parked)
        self.before_pulls = False
        if not parked:
            return []
        now = self._context.clock.monotonic()
        wanted: dict[_Name, tuple[int, float]] = {}
        for name in parked:
            if ParkedSet.is_of_former_lane(name) or (ParkedSet.is_of_route(name) and parked.count(name)):
                self._call_back(name, wanted)
        # What came back is pulled first: a pull that runs along with the next ones would leave it again.
        for name in parked.wanted(0 if self._in_flight.unread else AT_ONCE):
            wanted[name] = RAMP_FROM, 0.0
        for name in parked.to_look_at(now, LOOK_EVERY, AT_ONCE):
            if not self._in_flight.to_park(name):  # else it tells of itself
                wanted.setdefault(name, (0, 0.0))
        self.before_pulls = any(self._all_return(name) for name in parked)
        keys, epoch = self._context.keys, self._context.incarnation.name
        return [(name, most, commands.unpark(keys, epoch, name, most, begin)) for name, (most, begin) in wanted.items()]

    def _call_back(self, name: _Name, wanted: dict[_Name, tuple[int, float]]) -> None:
        share = self._shares.get(name)
        if share is None:
            if self._all_return(name):
                wanted[name] = RAMP_TO, 0.0
            return
        if self._in_flight.unread:
            return  # what came back and was not pulled yet takes room too
        probing = share.broken
        ramp = RAMP_FROM if probing else self._ramp.get(name, RAMP_FROM)
        if limit := share.may_come_back(ramp):
            wanted[name] = limit, self._begin(name) if probing else 0.0
            self._ramp[name] = ramp if probing else min(RAMP_TO, 2 * ramp)

    def _begin(self, name: _Name) -> float:
        """Where to take probes from: the lowest, but after some that failed every other time from anywhere.

        A few messages that never get through would keep all others parked else.
        """
        self._probed[name] = self._probed.get(name, 0) + 1
        return random.random() if self._probed[name] > LOWEST_FIRST and self._probed[name] % 2 else 0.0

    def answered(self, name: _Name, most: int, answer: Parked) -> None:
        """Note what came back, of at most so many."""
        something_left = self._in_flight.observe_set(name, answer, moved=most > 0)
        if answer.head is None:
            self._ramp.pop(name, None)
            self._probed.pop(name, None)
            self._refusals.forget_returned(self._parked)
            if name == ParkedSet.NO_ROUTE:
                self._unrouted = False
        elif not most and something_left:
            self._parked.look_again(name)  # some were cancelled, and there may be more of them
