"""Brings parked messages back: of targets that take them again, of ordering keys with few in memory, of routes that
are gone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from delayq.clock import Clock
from delayq.store import commands
from delayq.store.commands import Command, Parked
from workers.queue.parked_sets import NO_ROUTE
from workers.queue.sort import Dispatch
from workers.queue.tenure import Tenure

__all__ = ["Unparking"]

RAMP_FROM, RAMP_TO = 16, 500
AT_ONCE = 8
LOWEST_FIRST = 3  # probes of the lowest before others are tried
LOOK_EVERY = 10_000  # ms between two looks at a set of which nothing may come back
_Name = str


class Unparking:
    """What of one queue is parked, and how much of it comes back in this tick."""

    def __init__(self, tenure: Tenure, parked: Sequence[_Name], dispatch: Dispatch, clock: Clock) -> None:
        self._tenure = tenure
        self._dispatch = dispatch
        self._clock = clock
        self._ramp: dict[_Name, int] = {}
        self._probed: dict[_Name, int] = {}  # how often since it was parked
        self._looking: set[_Name] = set()  # sets of which nothing is to come back in this tick
        self._unrouted = NO_ROUTE in parked
        dispatch.parked.found(parked)
        dispatch.keys_to_unpark.update(name for name in parked if name.startswith("k:"))

    @property
    def before_pulls(self) -> bool:
        """Whether pulls have to wait: newer ones would overtake what comes back for its stream, and what has no route now
        either would be parked again before all came back."""
        return any(self._all_return(name) for name in self._dispatch.parked)

    def _all_return(self, name: _Name) -> bool:
        """Whether all of a set comes back at once, as no forwarder takes it: its stream, or perhaps another route."""
        work = self._dispatch
        if not name.startswith("t:") or name[2:] in work.submitted:
            return False
        if name == NO_ROUTE:
            return self._unrouted
        return name in work.returning or not work.refuses(name)

    def commands(self) -> list[tuple[_Name, Command[Parked | None]]]:
        """What to run now."""
        work = self._dispatch
        work.returning.intersection_update(work.parked)
        wanted: dict[_Name, tuple[int, float]] = {}
        for name in work.parked:
            if name.startswith("t:") and work.parked.turn(name):
                self._call_back(name, wanted)
        # What came back is pulled first: a pull that runs along with the next ones would leave it again.
        for _ in range(0 if work.flight.offset.unread else min(AT_ONCE, len(work.keys_to_unpark))):
            name = work.keys_to_unpark.pop()
            if name in work.parked:
                wanted[name] = RAMP_FROM, 0.0
        for name in work.parked.to_look_at(self._clock.monotonic(), LOOK_EVERY, AT_ONCE):
            if name not in work.settlement.parkings:  # else it tells of itself
                wanted.setdefault(name, (0, 0.0))
        self._looking = {name for name, (most, _) in wanted.items() if not most}
        keys, epoch = self._tenure.keys, self._tenure.name
        return [
            (name, commands.unpark(keys, epoch, name, work.parked.turn(name), most, begin))
            for name, (most, begin) in wanted.items()
        ]

    def _call_back(self, name: _Name, wanted: dict[_Name, tuple[int, float]]) -> None:
        work = self._dispatch
        if name[2:] not in work.submitted:
            if self._all_return(name):
                wanted[name] = RAMP_TO, 0.0
        elif not work.flight.offset.unread:  # what came back and was not pulled yet takes room too
            probing = work.probing(name)
            ramp = RAMP_FROM if probing else self._ramp.get(name, RAMP_FROM)
            if limit := work.may_come_back(name, ramp):
                wanted[name] = limit, self._begin(name) if probing else 0.0
                self._ramp[name] = ramp if probing else min(RAMP_TO, 2 * ramp)

    def _begin(self, name: _Name) -> float:
        """Where to take probes from: the lowest, but after some that failed every other time from anywhere.

        A few messages that never get through would keep all others parked else.
        """
        self._probed[name] = self._probed.get(name, 0) + 1
        return random.random() if self._probed[name] > LOWEST_FIRST and self._probed[name] % 2 else 0.0

    def take(self, name: _Name, answer: Parked) -> None:
        """Note what came back."""
        work = self._dispatch
        turn = work.parked.turn(name) if name in work.parked else ""
        work.told_of_set(name, answer)
        if answer.head is None:
            self._ramp.pop(name, None)
            self._probed.pop(name, None)
            work.returning.discard(name)
            if name == NO_ROUTE:
                self._unrouted = False
        elif name in self._looking and turn not in ("", answer.turn):
            work.parked.look_again(name)  # some were cancelled, and there may be more of them
        elif not turn and name.startswith("k:") and work.lanes.low(name):
            work.keys_to_unpark.add(name)  # the turn had to be told first
