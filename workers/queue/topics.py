"""Which topics a pull is told about: those that are streams in this Redis, and those that are not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from delayq.routes import Route, Routes
from delayq.store.commands import Known
from delayq.store.keys import QueueKeys
from delayq.targets.redis_stream.target import is_local

__all__ = ["MOST", "Topics"]

#: Most topics that a pull is given; the first one told is the first one out.
MOST = 256


class Topics:
    """The known topics of one queue. A pull names those it does not know, and is given them the next time."""

    def __init__(self, routes: Routes, redis_url: str) -> None:
        self._routes = routes
        self.local = {route.name for route in routes.table if is_local(route, redis_url)}
        self._known: dict[str, Known] = {}
        self._refused: frozenset[str] = frozenset()
        self._as_list: list[Known] = []

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
        self._as_list = [Known(one.topic) if one.topic in self._refused else one for one in self._known.values()]
