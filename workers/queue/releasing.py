"""Releases messages from parked sets.

A topic's set is released when the topic is not paused. A target's set is released when the target takes messages again,
and a key's set when few messages of the key are in flight. The command that takes messages out of a set returns their records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import Command, Head, Most, Now, Outdated, Released
from delayq.store.keys import ParkedSet
from workers.limits.limit import Limit, Listener
from workers.limits.rate import Permits, RateLimit
from workers.queue import ordering
from workers.queue.in_flight import InFlight
from workers.queue.queue_context import QueueContext
from workers.queue.share import Share
from workers.queue.topics import APPENDED_AT_ONCE, Topics

#: The most topics of one release. Other clients of Redis wait while its script runs.
TOPICS_AT_ONCE: Final = 64
#: The most releases of sets of routes and keys in a tick.
SETS_AT_ONCE: Final = 8
#: The most sets that a tick looks at.
LOOKED_AT_ONCE: Final = 256


class Release(msgspec.Struct, frozen=True):
    """A release, and by topic the permits with which it appends messages to streams in this Redis."""

    command: Command[Released | Outdated | None]
    permits: Mapping[str, tuple[RateLimit, Permits]] = {}


class _Turn:
    """The bounds of the releases of one tick, and the releases chosen so far."""

    def __init__(self, most: int, now: int) -> None:
        self.most = most  # messages of one release
        self.now = now
        self.counts: dict[str, int] = {}  # by topic
        self.others: dict[str, tuple[int, float]] = {}  # by the name of another set: the count, and where to begin
        self.permits: dict[str, tuple[RateLimit, Permits]] = {}  # by topic, for messages that are appended
        self.left = most
        self.to_append = APPENDED_AT_ONCE
        self.shares: dict[Share, int] = {}  # how many messages each has room for
        self.limits: dict[Limit, int] = {}  # how many messages of each short limit may still be released

    @property
    def full(self) -> bool:
        """Whether the releases of topics have reached their bounds."""
        return self.left <= 0 or len(self.counts) >= TOPICS_AT_ONCE

    def room_of(self, share: Share) -> int:
        """How many messages may be released for a target."""
        if share not in self.shares:
            self.shares[share] = share.may_come_back(self.most)
        return self.shares[share]


class Releasing:
    """Chooses which sets are released in a tick, and how much of each. Limits notify `listener`, the pull job, of its turns."""

    def __init__(self, context: QueueContext, in_flight: InFlight, topics: Topics, listener: Listener) -> None:
        self._context = context
        self._in_flight = in_flight
        self._parked = in_flight.parked
        self._shares = {share.parked_set: share for share in in_flight.shares.values()}
        self._topics = topics
        self._listener = listener
        self._waiting: dict[Limit, dict[str, None]] = {}  # the sets that wait for each limit
        self._to_look_at = 0  # the number of sets that this round has yet to look at
        self.in_backlog = False  # more may be released, or this round has not looked at every set
        self.waits_for_pulls = False  # a due message is after the place that the pulls have reached

    def empty(self, policies: Policies, now: Now) -> list[Release]:
        """Return releases that move messages without a sender to the sets of their topics. Pulls wait until all have moved."""
        return [self._of_set(name, None, policies, None, now) for name in self._parked.emptied[:SETS_AT_ONCE]]

    def releases(
        self,
        policies: Policies,
        read_up_to: Head | None,
        unix: int,
        *,
        now: Now,
        by_redis: Callable[[int], int],
    ) -> list[Release]:
        """Return the releases to send now: of no message after `read_up_to`, and of none due later than `unix`.

        `by_redis` converts times of the monotonic clock to the clock of Redis.
        """
        parked = self._parked
        self.in_backlog = self.waits_for_pulls = parked.changed = False
        if not parked:
            return []
        if not self._to_look_at:
            self._to_look_at = len(parked)
            there = {limit: dict.fromkeys(filter(parked.__contains__, names)) for limit, names in self._waiting.items()}
            self._waiting = {limit: names for limit, names in there.items() if names}
        turn = _Turn(self._context.bounds.look, self._context.clock.monotonic())
        last: Head = (unix, b"\xff") if read_up_to is None else min((unix, b"\xff"), read_up_to)
        for name in parked.first(min(self._to_look_at, LOOKED_AT_ONCE)):
            if turn.full:
                break
            self._to_look_at -= 1
            parked.to_end(name)
            if parked.head(name) > last:
                self.waits_for_pulls = self.waits_for_pulls or parked.head(name)[0] <= unix
            elif ParkedSet.is_of_topic(name):
                self._look_at_topic(name, policies, turn)
            else:
                self._look_at_other(name, turn)
        self._to_look_at = min(self._to_look_at, len(parked))
        self.in_backlog = self.in_backlog or self._to_look_at > 0
        found = [self._of_topics(turn, policies, read_up_to, now, by_redis)] if turn.counts else []
        for name, (count, begin) in turn.others.items():
            found.append(self._of_set(name, count, policies, read_up_to, now, begin))
        return found

    def _look_at_other(self, name: str, turn: _Turn) -> None:
        """Look at the set of a route or of a lane. Without a sender nothing is released: the stream refuses messages."""
        topic = ParkedSet.topic(name)
        route = self._context.routes.find(topic) if topic is not None else None
        share = self._shares.get(ParkedSet.of_route(route.name) if route is not None else name)
        if share is None or (topic is not None and not self._in_flight.has_few_of(name)):
            return
        count = min(turn.room_of(share), turn.left, ordering.MOST if topic is not None else turn.most)
        if count <= 0:
            return
        self.in_backlog = True
        if len(turn.others) == SETS_AT_ONCE:
            return
        turn.shares[share] -= count
        turn.left -= count
        # A few messages that always fail must not keep all others parked.
        others = share.broken and share.sender.circuit.probes_others and random.random() < 0.5
        begin = random.random() if others else 0.0
        turn.others[name] = count, begin

    def _look_at_topic(self, name: str, policies: Policies, turn: _Turn) -> None:
        topic = name[2:]
        appended = self._topics.is_appended(topic)
        count = min(self._parked.count(name), turn.left, *([turn.to_append] if appended else ()))
        route = self._context.routes.find(topic)
        share = self._in_flight.shares.get(route.name) if route is not None else None
        limits: tuple[Limit, ...] = ()
        if policies.limited and share is not None:
            limits = self._context.limits.of(topic, policies, share.sender.longest)
        elif policies.limited and appended and (rate := self._context.limits.rate(topic, policies)) is not None:
            limits = (rate,)
        # If the circuit is open, limited messages stay until one may be a probe. Others move to the set of the target.
        if share is not None and (limits or not share.broken):
            count = min(count, turn.room_of(share))
        for limit in limits:
            count = self._in_turn(name, limit, count, share, turn)
        if share is not None and limits and not all(limit.permits(turn.now) for limit in limits):
            count = min(count, share.room_for_limited)
        if share is None and limits and count > 0:
            count = self._take_permits(topic, limits[0], count, turn)
        if count <= 0:
            return
        if share is not None and share in turn.shares:
            turn.shares[share] -= count
        for limit in turn.limits.keys() & limits:
            turn.limits[limit] -= count
            limit.end_turn(self._listener)
        turn.left -= count
        turn.to_append -= count if appended else 0
        turn.counts[topic] = count
        self.in_backlog = self.in_backlog or not limits

    def _in_turn(self, name: str, limit: Limit, count: int, share: Share | None, turn: _Turn) -> int:
        """How many of `count` messages may be released by a limit. If it is not short, they wait for it at their sender."""
        if count <= 0 or (share is not None and not limit.is_short(turn.now)):
            return count
        self._waiting.setdefault(limit, {})[name] = None
        if limit not in turn.limits:
            turn.limits[limit] = limit.turn(self._listener, turn.now, appends=share is None)
        return min(count, turn.limits[limit])

    def waits_for(self, limit: Limit) -> int:
        """The number of parked messages that wait for a limit; from any thread."""
        return sum([self._parked.count(name) for name in list(self._waiting.get(limit, ()))])

    def _take_permits(self, topic: str, limit: Limit, count: int, turn: _Turn) -> int:
        assert isinstance(limit, RateLimit)  # messages that are appended here have no other limit
        if taken := limit.take(count, turn.now):
            turn.permits[topic] = limit, taken
        else:  # others have used them: wait for another turn
            limit.end_turn(self._listener)
            limit.turn(self._listener, turn.now, appends=True)
        return sum([some for _, some in taken])

    def put_back(self, release: Release, released: Released) -> None:
        """Put back the permits with which nothing was appended."""
        for topic, (limit, some) in release.permits.items():
            taken = sum([count for _, count in some])
            limit.put_back(some, taken - released.left[topic], self._context.clock.monotonic())

    def end_turns(self) -> None:
        """Wait for no limit: the policies have changed, or nothing more is released."""
        for limit in self._waiting:
            limit.end_turn(self._listener)
        self._waiting = {}

    def _of_topics(
        self, turn: _Turn, policies: Policies, read_up_to: Head | None, now: Now, by_redis: Callable[[int], int]
    ) -> Release:
        context = self._context
        topics: dict[str, Most] = {**turn.counts}
        for topic, (_, some) in turn.permits.items():
            topics[topic] = [(by_redis(until), count) for until, count in some]
        command = commands.release(
            context.keys,
            context.incarnation.name,
            topics,
            known=self._topics.to_release(turn.counts, context.keys),
            upto=read_up_to,
            node_now=context.clock.now(),
            now=now,
            retention=context.retention,
            traced=context.spans is not None,
            version=policies.version,
        )
        return Release(command, turn.permits)

    def _of_set(
        self, name: str, count: int | None, policies: Policies, read_up_to: Head | None, now: Now, begin: float = 0
    ) -> Release:
        context = self._context
        command = commands.release_set(
            context.keys,
            context.incarnation.name,
            name,
            count,
            upto=read_up_to,
            begin=begin,
            node_now=context.clock.now(),
            now=now,
            version=policies.version,
        )
        return Release(command)
