"""Which topics a pull is told about: those that are streams in this Redis, and those that are not; and whose streams take
nothing, as the user of delayq may not write to them, or their ids have come to an end.

The messages of these are set aside like those of any target that is down, and the streams are asked now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import structlog

from delayq.policies import NO_POLICIES, Bucket, Policies
from delayq.routes import Route, Routes
from delayq.store.commands import Bound, Known
from delayq.store.keys import QueueKeys
from delayq.targets.redis_stream.target import is_local
from workers.queue.held import HeldSets
from workers.queue.parked_sets import ParkedSets, of_route

__all__ = ["MOST", "Refusals", "Topics"]

#: Most topics that a pull is given; the first one told is the first one out.
MOST = 256
FIRST_PAUSE = 1_000  # ms until a stream that takes nothing is asked
LONGEST_PAUSE = 30_000
log = structlog.get_logger()


class Topics:
    """The known topics of one queue. A pull names those it does not know, and is given them the next time."""

    def __init__(self, routes: Routes, redis_url: str) -> None:
        self._routes = routes
        self.local = {route.name for route in routes.table if is_local(route, redis_url)}
        self._known: dict[str, Known] = {}
        self._refused: frozenset[str] = frozenset()
        self._policies = NO_POLICIES
        self._as_list: list[Known] = []
        self._paused: set[str] = set()
        self._limited: dict[str, Bucket] = {}

    @property
    def unlisted_general(self) -> bool:
        """Whether a topic that a pull was not told about cannot be a stream here."""
        return not self.local

    def known(self) -> Sequence[Known]:
        """What to tell the next pull."""
        return self._as_list

    def streams(self, keys: QueueKeys) -> dict[str, str]:
        """The streams of the known topics in this Redis, each with the name of its route."""
        found: dict[str, str] = {}
        for one in list(self._as_list):
            route = self._routes.find(one.topic)
            if route is not None and (stream := one.key(keys)) is not None:
                found[stream] = route.name
        return found

    def bounds(self, held: HeldSets, reserve: Callable[[str, Bucket], int]) -> list[Bound]:
        """What is not to be appended: what is paused; of what is limited what is beyond what is reserved for a topic; and from
        where on messages with an ordering key, as they follow some that are held."""
        firsts = held.streams(held) if held and self.local else {}
        if not (firsts or self._paused or self._limited):
            return []
        bounds = []
        for one in self._as_list:
            route = self._routes.find(one.topic) if one.stream is not None else None
            if route is None:
                continue
            head, bucket = firsts.get(route.stream_of(one.topic)), self._limited.get(one.topic)
            most = None
            if one.topic in self._paused:
                most = 0
            elif bucket is not None:
                most = reserve(one.topic, bucket)
            if head is not None or most is not None:
                bounds.append(Bound(one.topic, most, head))
        return bounds

    def learn(self, topics: Iterable[str]) -> None:
        """Find the routes of topics that a pull did not know; at most MOST of them are kept."""
        for topic in list(topics)[:MOST]:
            self._known.pop(topic, None)
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[topic] = self._find(topic)
        self._list()

    def refuse(self, topics: Collection[str]) -> None:
        """Tell pulls to return the messages of these topics, and only these: their streams take nothing."""
        if self._refused != set(topics):
            self._refused = frozenset(topics)
            self._list()

    def observe_policies(self, policies: Policies) -> None:
        """Tell pulls to append nothing of what is paused, and of what is limited what is granted."""
        self._policies = policies
        self._list()

    def route(self, topic: str) -> Route | None:
        """The topic's route."""
        return self._routes.find(topic)

    def stream(self, topic: str, keys: QueueKeys) -> str | None:
        """The key of the topic's stream, if it is one in this Redis."""
        return self._find(topic).key(keys)

    def _find(self, topic: str) -> Known:
        route = self._routes.find(topic)
        if route is None or route.name not in self.local:
            return Known(topic)
        return Known(topic, route.stream_of(topic), route.max_length, route.per_queue)

    def _list(self) -> None:
        self._as_list = [Known(topic) if topic in self._refused else one for topic, one in self._known.items()]
        self._paused = {topic for topic in self._known if self._policies.pause(topic) is not None}
        self._limited = {topic: bucket for topic in self._known if (bucket := self._policies.bucket(topic)) is not None}


class _Refusal(msgspec.Struct):
    """Why a stream takes nothing (None: it takes messages again), and when to ask it (monotonic ms)."""

    name: str  # of the set in which its route's messages are parked
    reason: str | None
    ask_at: int
    pause: int


class Refusals:
    """Of one queue. A stream that refuses again soon after it was found well is asked at longer intervals."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._topics: dict[str, _Refusal] = {}
        self._returning: set[str] = set()

    @property
    def reasons(self) -> Mapping[str, str]:
        """The topics, and why their streams take nothing."""
        return {topic: one.reason for topic, one in list(self._topics.items()) if one.reason is not None}

    def add(self, topic: str, reason: str, now: int) -> None:
        """Its stream takes nothing."""
        known = self._topics.get(topic)
        pause = FIRST_PAUSE if known is None else min(LONGEST_PAUSE, 2 * known.pause)
        if known is None or known.reason is None:
            log.error("stream_refuses", topic=topic, error=reason)
        route = self._routes.find(topic)
        self._topics[topic] = _Refusal(of_route(route.name if route is not None else ""), reason, now + pause, pause)

    def to_ask(self, now: int) -> list[str]:
        """The topics whose streams are to be asked now. What was found well for long is forgotten."""
        for topic, one in list(self._topics.items()):
            if one.reason is None and now >= one.ask_at:
                del self._topics[topic]
        return [topic for topic, one in self._topics.items() if one.reason is not None and now >= one.ask_at]

    def end(self, topic: str, now: int) -> None:
        """Its stream takes messages again: what is parked for its route comes back."""
        one = self._topics[topic]
        one.reason, one.ask_at = None, now + 2 * LONGEST_PAUSE
        self._returning.add(one.name)
        log.warning("stream_takes", topic=topic)

    def keep_parked(self, name: str) -> bool:
        """Whether a stream refuses for which messages are parked in this set, and none of the set takes them again."""
        return name not in self._returning and any(
            one.reason is not None and one.name == name for one in self._topics.values()
        )

    def forget_returned(self, parked: ParkedSets) -> None:
        """Of sets that are not parked any more, all has come back."""
        self._returning = {name for name in self._returning if name in parked}
