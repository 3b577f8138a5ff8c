"""The topics that a pull gets, with their streams in this Redis, and the streams that refuse messages.

A stream refuses messages if the user of delayq may not write to it, or if it has reached its highest possible entry id. These
messages are parked like those of a target that is down, and pulls try the streams again after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from delayq.domain.policies import NO_POLICIES, Bucket, Policies
from delayq.domain.routes import Route, Routes
from delayq.store.commands import BucketHere, Known, KnownTopics
from delayq.store.connect.address import CLUSTER, parse
from delayq.store.keys import Keys, ParkedSet, QueueKeys
from delayq.targets.redis_stream.target import is_local
from workers.limits.asking import NodeLimits
from workers.limits.rate import life_and_burst

#: The most topics that a pull gets. Further topics replace the oldest.
MOST = 256
#: The most messages that a script appends to streams, because other clients wait until it ends.
APPENDED_AT_ONCE: Final = 200
#: ms until the streams that take nothing are asked again.
ASK_EVERY: Final = 10_000
log = structlog.get_logger()

#: A stream in this Redis: the name of its route, and its own name.
Stream = tuple[str, str]


def stream_of(route: Route, topic: str) -> Stream:
    """The stream of a topic of this route."""
    return route.name, route.stream_of(topic)


class Topics:
    """The known topics of one queue. A pull reports unknown topics, and the next pull gets them.

    `note` is called with each unknown topic.
    """

    def __init__(
        self, routes: Routes, redis_url: str, keys: Keys, note: Callable[[Iterable[str]], None] = lambda topics: None
    ) -> None:
        self._routes = routes
        self._note = note
        self._keys = keys
        self._one_server = parse(redis_url).kind != CLUSTER  # then the buckets are on the server of the queues
        self.local = {route.name for route in routes.table if is_local(route, redis_url)}
        self._known: dict[str, Known] = {}
        self._streams: dict[str, Stream | None] = {}  # of the same topics
        # Streams that refuse messages: a topic of each, and the error.
        self._refused: dict[Stream, tuple[str, str]] = {}
        self._asked_at = 0  # monotonic ms
        self._policies = NO_POLICIES
        self._spending: dict[str, Known] = {}  # limited topics, with the buckets from which pulls spend
        self._as_list: list[Known] = []
        self._for_pulls: KnownTopics | None = None  # the same for pulls
        self._appended: dict[str, str] = {}  # to these streams
        self.limited: dict[str, str] = {}  # by topic that is appended, the name of its bucket

    @property
    def unlisted_general(self) -> bool:
        """Whether unlisted topics cannot be streams in this Redis."""
        return not self.local

    def known(self, keys: QueueKeys) -> KnownTopics:
        """The topics for the next pull."""
        if self._for_pulls is None:
            self._for_pulls = KnownTopics.of(keys, self._as_list)
        return self._for_pulls

    @property
    def names(self) -> list[str]:
        """The names of the known topics; from any thread."""
        return list(self._known)

    @property
    def appended(self) -> Iterable[str]:
        """The known topics that pulls append to streams in this Redis."""
        return self._appended

    def streams(self, keys: QueueKeys) -> dict[str, str]:
        """The streams of the known topics in this Redis, each with the name of its route."""
        found: dict[str, str] = {}
        for one in list(self._as_list):
            route = self._routes.find(one.topic)
            if route is not None and (stream := one.key(keys)) is not None:
                found[stream] = route.name
        return found

    def without_permits(self, limits: NodeLimits, now: int) -> list[str]:
        """The limited topics of streams that pulls move into their sets, from where releases append them by permits.

        On a single server, pulls spend from the buckets of the other topics themselves.
        """
        limited = self.limited.items()
        return [topic for topic, name in limited if not self._one_server or limits.has_queue(name, now)]

    def to_release(self, topics: Iterable[str], keys: QueueKeys) -> KnownTopics:
        """The topics for a release of their sets."""
        return KnownTopics.of(
            keys, [self._find(topic) if self.is_appended(topic) else Known(topic) for topic in topics]
        )

    def is_appended(self, topic: str) -> bool:
        """Whether messages of a topic are appended to a stream in this Redis that accepts them."""
        route = self._routes.find(topic)
        return route is not None and route.name in self.local and stream_of(route, topic) not in self._refused

    def learn(self, topics: Iterable[str]) -> None:
        """Add topics that a pull did not know. At most MOST topics are kept."""
        topics = list(topics)[:MOST]
        for topic in topics:
            self._known.pop(topic, None)
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            route = self._routes.find(topic)
            self._streams[topic] = stream_of(route, topic) if route is not None else None
            self._known[topic] = self._find(topic)
        self._streams = {topic: self._streams[topic] for topic in self._known}
        self._list()
        self._note(topics)

    # -- streams that take nothing: all topics of a stream wait for it, so that messages with an ordering key stay in order -----

    @property
    def refused(self) -> Mapping[Stream, str]:
        """The streams that refuse messages, with the error."""
        return {stream: reason for stream, (_, reason) in list(self._refused.items())}

    def refuse(self, topic: str, reason: str) -> bool:
        """Have pulls return the messages of a topic's stream, which refuses them. True if the stream accepted them before."""
        stream = self._stream_of(topic)
        took = stream not in self._refused
        self._refused[stream] = topic, reason
        if took:
            log.error("stream_refuses", topic=topic, error=reason)
            self._list()
        return took

    def take_again(self, topic: str) -> str | None:
        """Have pulls append to a topic's stream again. If it refused messages, return the name of its route's parked set."""
        stream = self._stream_of(topic)
        if self._refused.pop(stream, None) is None:
            return None
        log.warning("stream_takes", topic=topic)
        self._list()
        return ParkedSet.of_route(stream[0])

    def to_ask(self, now: int) -> list[str]:
        """A topic of each stream that refuses messages, if the streams are tried again now (monotonic ms)."""
        if not self._refused or now - self._asked_at < ASK_EVERY:
            return []
        self._asked_at = now
        return [topic for topic, _ in self._refused.values()]

    def _stream_of(self, topic: str) -> Stream:
        route = self._routes.find(topic)
        return stream_of(route, topic) if route is not None else ("", topic)

    # -- limits ------------------------------------------------------------------------------------------------------

    def observe_policies(self, policies: Policies) -> None:
        """Have pulls append messages of limited topics only with permits."""
        self._policies, self._spending = policies, {}
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
        self._as_list = [
            Known(topic) if self._streams[topic] in self._refused else one for topic, one in self._known.items()
        ]
        self._for_pulls = None
        self._appended = {
            one.topic: stream[1]
            for one in self._as_list
            if one.stream is not None and (stream := self._streams[one.topic]) is not None
        }
        buckets = {
            topic: bucket
            for topic in self._appended
            if self._policies.pause(topic) is None and (bucket := self._policies.bucket(topic)) is not None
        }
        self.limited = {topic: bucket.name for topic, bucket in buckets.items()}
        if not self._one_server:
            return
        self._spending = {
            topic: self._spending.get(topic) or _spending(self._known[topic], bucket, self._keys)
            for topic, bucket in buckets.items()
        }
        self._as_list = [self._spending.get(one.topic, one) for one in self._as_list]


def _spending(known: Known, bucket: Bucket, keys: Keys) -> Known:
    _, burst = life_and_burst(bucket)
    here = BucketHere(keys.rate(bucket.name), bucket.rate, burst)
    return Known(known.topic, known.stream, known.max_length, known.per_queue, here)
