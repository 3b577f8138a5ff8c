"""Brings parked messages back: of targets that take them again, of ordering keys with few in flight, of routes that are
gone, of topics that are not paused any more."""

from __future__ import annotations

import random
from collections.abc import Sequence

from delayq.policies import Policies
from delayq.store import commands
from delayq.store.commands import Command, Head, Parked
from delayq.store.keys import ParkedSet
from workers.limits.limit import Limit, Listener
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets
from workers.queue.share import Share
from workers.queue.tenure import Tenure
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
        tenure: Tenure,
        names: Sequence[_Name],
        parked: ParkedSets,
        refusals: Refusals,
        in_flight: InFlight,
        listener: Listener,
    ) -> None:
        self._tenure = tenure
        self._parked = parked
        self._refusals = refusals
        self._in_flight = in_flight
        self._listener = listener  # the pull job: limits tell it of room and permits
        self._wanted: dict[Limit, tuple[int, Head]] = {}  # what limits were told of
        self._shares = {share.aside: share for share in in_flight.shares.values()}
        self._ramp: dict[_Name, int] = {}
        self._probed: dict[_Name, int] = {}  # how often since it was parked
        self._unrouted = ParkedSet.NO_ROUTE in names
        self.before_pulls = False  # pulls have to wait in this tick
        self.returning = False  # held messages may come back as long as there are any
        self.in_backlog = False  # so many as there is room for: a look takes a slice of them
        in_flight.observe_sets(names)

    def _all_return(self, name: _Name) -> bool:
        """Whether all of a set comes back at once, as no forwarder takes it: its stream, or perhaps another route. Pulls have to
        wait: newer ones would overtake what comes back for its stream, or from a lane of a former version, and what has no
        route now either would be parked again before all came back."""
        if ParkedSet.is_of_former_lane(name):
            return True
        if not ParkedSet.is_of_route(name) or name in self._shares:
            return False
        if name == ParkedSet.NO_ROUTE:
            return self._unrouted
        return not self._refusals.keep_parked(name)

    def commands(self, policies: Policies, *, backlog: bool) -> list[tuple[_Name, int, Command[Parked | None]]]:
        """What to run now, by these policies, with the set and how many may come back (0: a look only); without `backlog` what
        comes back in slices waits for its turn."""
        if self.in_backlog and not backlog:
            return []
        parked = self._parked
        self._refusals.forget_returned(parked)
        self.before_pulls = self.returning = self.in_backlog = False
        if not (parked or self._wanted):
            return []
        now = self._tenure.clock.monotonic()
        wanted: dict[_Name, tuple[int, float]] = {}
        self._call_back_held(policies, wanted, now)
        for name in parked:
            if ParkedSet.is_of_former_lane(name) or (ParkedSet.is_of_route(name) and parked.count(name)):
                self._call_back(name, wanted)
        # What came back is pulled first: a pull that runs along with the next ones would leave it again.
        for name in parked.wanted(0 if self._in_flight.unread else AT_ONCE):
            wanted[name] = RAMP_FROM, 0.0
        for name in parked.to_look_at(now, LOOK_EVERY, AT_ONCE):
            if not self._in_flight.to_park(name):  # else it tells of itself
                wanted.setdefault(name, (0, 0.0))
        self.before_pulls = self.before_pulls or any(self._all_return(name) for name in parked)
        keys, epoch = self._tenure.keys, self._tenure.incarnation.name
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

    def _call_back_held(self, policies: Policies, wanted: dict[_Name, tuple[int, float]], now: int) -> None:
        """What is not paused any more comes back, as much as its target has room for, and of limited topics as much as may wait
        in memory."""
        wants: dict[Limit, tuple[int, Head]] = {}
        going = [name for name in self._parked.held if policies.pause(name[2:]) is None]
        room: dict[Limit, int] = {}
        limited = (
            {name for name in going if policies.bucket(name[2:]) or policies.slots(name[2:])}
            if policies.limited
            else set()
        )
        for name in going:
            head = self._parked.head(name)
            if head is None or not self._parked.count(name):
                continue
            route = self._tenure.routes.find(name[2:])
            share = self._shares.get(ParkedSet.of_route(route.name)) if route is not None else None
            limits: tuple[Limit, ...] = ()
            if name in limited:
                limits = self._limits(name[2:], policies, share)
            ramp = RAMP_TO if limits else self._ramp.get(name, RAMP_FROM)
            # Of a broken target what is limited stays until it may be a probe, and the rest moves on to what is parked for it.
            limit = ramp if share is None or (share.broken and not limits) else share.may_come_back(ramp)
            if limits and limit:
                limit = min(limit, self._parked.count(name))
                for one in limits:  # of the next one only as many permits are wanted as this one lets come back
                    count, earliest = wants.get(one, (0, head))
                    wants[one] = count + limit, min(earliest, head)
                    room.setdefault(one, one.room_for(self._listener, head, now))
                    limit = min(limit, room[one])
                if limit and not all(one.has_stock(now) for one in limits):
                    limit = min(limit, self._in_flight.room_for_limited(share))
            if not limit:
                continue
            self.returning = not self._in_flight.waiting
            self.in_backlog = self.in_backlog or (self.returning and not limits)
            if self._in_flight.unread or len(wanted) == AT_ONCE:
                if not limited:
                    break
                continue  # what came back and was not pulled yet takes room too
            # A pull that runs along would not append what has an ordering key: it comes behind what the set began with.
            self.before_pulls = self.before_pulls or (share is None and route is not None)
            wanted[name] = limit, 0.0
            for one in limits:
                room[one] -= limit
            if not limits:
                self._ramp[name] = min(RAMP_TO, 2 * ramp)
        self._want(wants, now)

    def _limits(self, topic: str, policies: Policies, share: Share | None) -> tuple[Limit, ...]:
        if share is not None:
            return self._tenure.limits.of(topic, policies, share.forwarder.longest)
        rate = self._tenure.limits.rate(topic, policies)
        return (rate,) if rate is not None else ()

    def _want(self, wants: dict[Limit, tuple[int, Head]], now: int) -> None:
        for limit in self._wanted.keys() - wants.keys():
            limit.want(self._listener, 0, (0, b""), now)
        for limit, (count, earliest) in wants.items():
            limit.want(self._listener, count, earliest, now)
        self._wanted = wants

    def want_nothing(self) -> None:
        """Nothing comes back any more: permits are for others."""
        self._want({}, self._tenure.clock.monotonic())

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
