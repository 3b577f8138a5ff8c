"""Redis Streams through the general path: a stream in another Redis, or in this one where a route asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError, NotDone, StoreError, StoreRefused, StoreUnavailable
from delayq.base.urls import split_url
from delayq.domain.routes import Route
from delayq.store.commands import Command, advanced, plain, redis_now
from delayq.store.connect.address import CLUSTER, SINGLE, parse
from delayq.store.connect.store import Store
from delayq.store.keys import Keys
from delayq.targets import OK, Delivery, Result
from delayq.targets.redis_stream.backlog import backlogs

#: Seconds that a single reply may take; each send has a deadline besides.
PATIENCE: Final = 30.0


def redis_url_of(target: str, redis_url: str) -> str:
    """The Redis behind a `redis+stream:` URL; without a host it is delayq's own. Raises ConfigError.

    The colon may precede any Redis URL, also for Sentinel and clusters: `redis+stream:redis+cluster://…`.
    """
    rest = target.partition(":")[2]
    if rest in ("", "//"):
        return redis_url
    if rest.startswith("//") and split_url(target).netloc:
        return f"redis:{rest}"
    if "://" not in rest.lstrip("/"):
        raise ConfigError("it is redis+stream:, redis+stream://host:port/db, or redis+stream: before any Redis URL")
    return rest


def is_local(route: Route, redis_url: str) -> bool:
    """Whether the pull script can append to the route's streams itself.

    They are in delayq's own Redis and have no bound, which would need a look at the stream. In a cluster they are in the
    slot of the queue only if each queue has its own stream.
    """
    if route.path == "general" or route.max_backlog is not None or not lies_here(route, redis_url):
        return False
    return route.per_queue or parse(redis_url).kind != CLUSTER


def lies_here(route: Route, redis_url: str) -> bool:
    """Whether the route's messages go into streams of delayq's own Redis, by whichever path."""
    if split_url(route.target).scheme != "redis+stream":
        return False
    try:
        there = parse(redis_url_of(route.target, redis_url))
    except ConfigError as error:
        raise ConfigError(f"route {route.name}: the target's URL is wrong: {error}") from None
    return parse(redis_url).same_as(there)


class RedisStreamTarget:
    """Appends each message to the stream of its topic, in a cluster on that stream's own primary.

    At least once: an append whose reply was lost is sent again, with the same `id` in the entry. With Sentinel and
    in a cluster the store sends such an append once more by itself. It follows their fail-overs, and a name that moves.
    """

    max_batch = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self._clock = SystemClock()
        self._route = route
        self._development: bool | None = False
        try:
            where = redis_url_of(url, redis_url)
            if redis_url and parse(where).same_as(parse(redis_url)):
                self._development = None  # unknown
            self._once = parse(where).kind == SINGLE
            self._store = Store(where, timeout=PATIENCE)
        except ConfigError as error:
            raise ConfigError(f"route {route.name}: the target's URL is wrong: {error}") from None

    def within(self, keys: Keys) -> None:
        """Use the keys of a namespace."""
        self._store.keys = keys

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Append a batch in one round trip (to each primary); where the route bounds the backlog, a first one asks for it."""
        deadline = self._clock.monotonic() + int(timeout * 1000)
        if self._route.max_backlog is None:
            return self._append(batch, deadline)
        streams = sorted({self._route.stream_of(one.topic) for one in batch})
        try:
            found = backlogs(self._store, streams, within=self._left(deadline))
        except StoreUnavailable as error:
            return [Result.unavailable(str(error))] * len(batch)
        full = {
            stream: Result.full(
                f"the consumers of {stream} have {count} entries before them, and maxBacklog is reached"
            )
            for stream, count in found.items()
            if count >= self._route.max_backlog
        }
        places = [full.get(self._route.stream_of(one.topic)) for one in batch]
        ready = [one for one, place in zip(batch, places, strict=True) if place is None]
        appended = iter(self._append(ready, deadline) if ready else ())
        return [next(appended) if place is None else place for place in places]

    def _append(self, batch: Sequence[Delivery], deadline: int) -> Sequence[Result]:
        if self._left(deadline) <= 0:
            return [Result.unavailable("no time was left to send it")] * len(batch)
        entry = "*" if self._development is False else self._moved_entry()
        appends: list[Command[Result]] = [
            plain(*self._words(one, entry), read=lambda _: OK, once=self._once) for one in batch
        ]
        answers = self._store.end(self._store.begin(appends, within=self._left(deadline)))
        return [answer if isinstance(answer, Result) else _failed(answer) for answer in answers]

    def _left(self, deadline: int) -> int:
        """ms until the deadline (monotonic ms)."""
        return deadline - self._clock.monotonic()

    def _moved_entry(self) -> str:
        """The id of the next entries: on a development server their time is the one that `advance` has moved."""
        try:
            ahead, now = self._store.run(advanced(self._store.keys)), self._store.run(redis_now())
        except StoreError as error:
            if isinstance(error, StoreRefused):  # a user who may append and no more
                self._development = False
            return "*"
        self._development = ahead is not None
        return "*" if ahead is None else f"{now + ahead}-*"

    def _words(self, one: Delivery, entry: str) -> list[Any]:
        words: list[Any] = ["XADD", self._route.stream_of(one.topic)]
        if self._route.max_length is not None:
            words += ("MAXLEN", "~", self._route.max_length)
        words += (
            entry,
            "id",
            one.id,
            "topic",
            one.topic,
            "tags",
            one.tags,
            "keys",
            " ".join(one.keys),
            "body",
            one.payload,
            "due",
            one.due,
            "attempt",
            one.attempt,
        )
        if one.ordering_key:
            words += ("orderingKey", one.ordering_key)
        for name, value in one.properties.items():
            words += (f"p:{name}", value)
        return words

    def close(self) -> None:
        """Close the connections."""
        self._store.close()


def _refused(text: str) -> Result:
    return Result.rejected(text) if text.startswith("WRONGTYPE") else Result.unavailable(text)


def _failed(error: StoreError) -> Result:
    if isinstance(error, NotDone):
        return Result.unavailable(str(error))
    return Result.unknown(str(error)) if isinstance(error, StoreUnavailable) else _refused(str(error))
