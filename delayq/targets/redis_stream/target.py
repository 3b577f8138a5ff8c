"""Redis Streams through the general path: a stream in another Redis, or in this one where a route asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.clock import SystemClock
from delayq.errors import ConfigError, NotDone, StoreError, StoreUnavailable
from delayq.routes import Route
from delayq.socket_writes import write_until
from delayq.store.commands import Command, plain
from delayq.store.connect.address import CLUSTER, SINGLE, parse
from delayq.store.connect.store import Store
from delayq.targets import OK, Delivery, Result
from delayq.targets.redis_stream.backlog import backlogs
from delayq.urls import split_url

__all__ = ["RedisStreamTarget", "is_local", "lies_here"]


def redis_url_of(target: str, redis_url: str) -> str:
    """The Redis behind a `redis+stream:` URL; without a host it is delayq's own.

    Behind the colon may stand any Redis URL, for sentinels and clusters: `redis+stream:redis+cluster://…`.
    """
    rest = target.partition(":")[2]
    if "://" in rest:
        return rest
    return redis_url if not split_url(target).netloc else target.replace("redis+stream", "redis", 1)


def is_local(route: Route, redis_url: str) -> bool:
    """Whether the pull script can append to the route's streams itself.

    They lie in delayq's own Redis, and have no bound, which would have to be looked at; in a cluster they lie in the slot
    of the queue only if each queue has its own.
    """
    if route.path == "general" or route.max_backlog is not None or not lies_here(route, redis_url):
        return False
    return route.per_queue or parse(redis_url).kind != CLUSTER


def lies_here(route: Route, redis_url: str) -> bool:
    """Whether the route's messages go into streams of delayq's own Redis, by whichever path."""
    if split_url(route.target).scheme != "redis+stream":
        return False
    return parse(redis_url).same_as(parse(redis_url_of(route.target, redis_url)))


class RedisStreamTarget:
    """Appends each message to the stream of its topic, in a cluster on that stream's own primary.

    At least once: an append whose reply was lost is sent again, with the same `id` in the entry. Behind sentinels and
    in a cluster the store follows a fail-over, and sends such an append once more by itself.
    """

    max_batch = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self._clock = SystemClock()
        self._route = route
        self._store: Store | None = None
        self._asking: Store | None = None  # how full streams are
        where = redis_url_of(url, redis_url)
        try:
            if route.max_backlog is not None:
                self._asking = Store(where)
            if parse(where).kind != SINGLE:
                self._store = Store(where)
                return
            self._pool = redis.ConnectionPool.from_url(
                where, retry=Retry(NoBackoff(), 0), protocol=2, socket_connect_timeout=2.0
            )
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"route {route.name}: the target's URL is wrong: {error}") from None

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Append a batch in one round trip (to each primary, whose replies then have the store's time-out, too).

        Where the route bounds the backlog, in two: the first asks for it.
        """
        deadline = self._clock.monotonic() + int(timeout * 1000)
        if self._asking is None or self._route.max_backlog is None:
            return self._append(batch, deadline)
        streams = sorted({self._route.stream_of(one.topic) for one in batch})
        try:
            found = backlogs(self._asking, streams)
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
        if self._store is not None:
            return self._append_by(self._store, batch, deadline)
        try:
            connection: Any = self._pool.get_connection()  # it connects
        except (redis.exceptions.RedisError, OSError) as error:
            return [Result.unavailable(str(error))] * len(batch)
        results: list[Result] = []
        begun = False
        try:
            packet = b"".join(part for one in batch for part in connection.pack_command(*self._words(one)))
            if self._left(deadline) <= 0:
                return [Result.unavailable("no time was left to send it")] * len(batch)
            begun = True
            write_until(connection._sock, packet, self._clock, deadline)
            left = max(1, self._left(deadline)) / 1000
            for _ in batch:
                results.append(self._result(connection, left))
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            connection.disconnect()
            make = Result.unknown if begun else Result.unavailable
            results += [make(str(error))] * (len(batch) - len(results))
        except BaseException:  # it may have half of a command
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)
        return results

    def _append_by(self, store: Store, batch: Sequence[Delivery], deadline: int) -> Sequence[Result]:
        appends: list[Command[Result]] = [plain(*self._words(one), read=lambda _: OK) for one in batch]
        answers = store.end(store.begin(appends, within=self._left(deadline)))
        return [answer if isinstance(answer, Result) else _failed(answer) for answer in answers]

    def _left(self, deadline: int) -> int:
        """ms until the deadline (monotonic ms)."""
        return deadline - self._clock.monotonic()

    def _words(self, one: Delivery) -> list[Any]:
        words: list[Any] = ["XADD", self._route.stream_of(one.topic)]
        if self._route.max_length is not None:
            words += ("MAXLEN", "~", self._route.max_length)
        words += (
            "*",
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
        for name, value in one.properties.items():
            words += (f"p:{name}", value)
        return words

    @staticmethod
    def _result(connection: Any, timeout: float) -> Result:
        try:
            connection.read_response(timeout=timeout)
        except redis.exceptions.ResponseError as error:
            return _refused(str(error))
        return OK

    def close(self) -> None:
        """Close the connections."""
        if self._asking is not None:
            self._asking.close()
        if self._store is not None:
            self._store.close()
        else:
            self._pool.disconnect()


def _refused(text: str) -> Result:
    return Result.rejected(text) if text.startswith("WRONGTYPE") else Result.unavailable(text)


def _failed(error: StoreError) -> Result:
    if isinstance(error, NotDone):
        return Result.unavailable(str(error))
    return Result.unknown(str(error)) if isinstance(error, StoreUnavailable) else _refused(str(error))
