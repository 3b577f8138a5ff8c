"""Which topics a pull is told about: those that are streams in this Redis, and those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delayq.routes import Routes
from delayq.store.commands import Known
from delayq.store.keys import QueueKeys
from delayq.targets.redis_stream import is_local

__all__ = ["MOST", "Topics"]

#: Most topics that a pull is given; the first one told is the first one out.
MOST = 256


class Topics:
    """The known topics of one queue. A pull names those it does not know, and is given them the next time."""

    def __init__(self, routes: Routes, redis_url: str) -> None:
        self._routes = routes
        self.local = {route.name for route in routes.table if is_local(route, redis_url)}
        self._known: dict[str, Known] = {}
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
            if route is not None and one.stream is not None:
                found[keys.stream(one.stream) if one.per_queue else one.stream] = route.name
        return found

    def learn(self, topics: Iterable[str]) -> None:
        """Find the routes of topics that a pull did not know; at most MOST of them are kept."""
        for topic in list(topics)[:MOST]:
            route = self._routes.find(topic)
            local = route is not None and route.name in self.local
            self._known.pop(topic, None)
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[topic] = Known(
                topic,
                route.stream_of(topic) if route is not None and local else None,
                route.max_length if route is not None and local else None,
                route.per_queue if route is not None and local else False,
            )
        self._as_list = list(self._known.values())
