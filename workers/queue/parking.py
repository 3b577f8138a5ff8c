"""Brings parked messages back: of targets that take them again, of ordering keys with few in flight, of routes that are
gone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from delayq.store import commands
from delayq.store.commands import Command, Parked
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import NO_ROUTE, ParkedSets
from workers.queue.tenure import Tenure
from workers.queue.topics import Refusals

__all__ = ["Parking"]

RAMP_FROM, RAMP_TO = 16, 500
AT_ONCE = 8
LOWEST_FIRST = 3  # probes of the lowest before others are tried
LOOK_EVERY = 10_000  # ms between two looks at a set of which nothing may come back
_Name = str


class Parking:
    """How much of what is parked comes back in this tick; `names` are the parked sets at the claim."""

    def __init__(
        self, tenure: Tenure, names: Sequence[_Name], parked: ParkedSets, refusals: Refusals, in_flight: InFlight
    ) -> None:
        self._tenure = tenure
        self._parked = parked
        self._refusals = refusals
        self._in_flight = in_flight
        self._shares = {share.aside: share for share in in_flight.shares.values()}
        self._ramp: dict[_Name, int] = {}
        self._probed: dict[_Name, int] = {}  # how often since it was parked
        self._looking: set[_Name] = set()  # sets of which nothing is to come back in this tick
        self._unrouted = NO_ROUTE in names
        in_flight.observe_sets(names)

    @property
    def before_pulls(self) -> bool:
        """Whether pulls have to wait: newer ones would overtake what comes back for its stream, and what has no route now
        either would be parked again before all came back."""
        return any(self._all_return(name) for name in self._parked)

    def _all_return(self, name: _Name) -> bool:
        """Whether all of a set comes back at once, as no forwarder takes it: its stream, or perhaps another route."""
        if not name.startswith("t:") or name in self._shares:
            return False
        if name == NO_ROUTE:
            return self._unrouted
        return not self._refusals.keep_parked(name)

    def commands(self) -> list[tuple[_Name, Command[Parked | None]]]:
        """What to run now."""
        parked = self._parked
        self._refusals.forget_returned(parked)
        wanted: dict[_Name, tuple[int, float]] = {}
        for name in parked:
            if name.startswith("t:") and parked.turn(name):
                self._call_back(name, wanted)
        # What came back is pulled first: a pull that runs along with the next ones would leave it again.
        for name in parked.wanted(0 if self._in_flight.unread else AT_ONCE):
            wanted[name] = RAMP_FROM, 0.0
        for name in parked.to_look_at(self._tenure.clock.monotonic(), LOOK_EVERY, AT_ONCE):
            if not self._in_flight.to_park(name):  # else it tells of itself
                wanted.setdefault(name, (0, 0.0))
        self._looking = {name for name, (most, _) in wanted.items() if not most}
        keys, epoch = self._tenure.keys, self._tenure.incarnation.name
        return [
            (name, commands.unpark(keys, epoch, name, parked.turn(name), most, begin))
            for name, (most, begin) in wanted.items()
        ]

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

    def answered(self, name: _Name, answer: Parked) -> None:
        """Note what came back."""
        turn = self._parked.turn(name) if name in self._parked else ""
        self._in_flight.observe_set(name, answer)
        if answer.head is None:
            self._ramp.pop(name, None)
            self._probed.pop(name, None)
            self._refusals.forget_returned(self._parked)
            if name == NO_ROUTE:
                self._unrouted = False
        elif name in self._looking and turn not in ("", answer.turn):
            self._parked.look_again(name)  # some were cancelled, and there may be more of them
        elif not turn and name.startswith("k:") and self._in_flight.may_return_to_lane(name):
            self._parked.want(name)  # the turn had to be told first
