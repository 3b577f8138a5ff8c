"""Redis Streams through the general path: a stream in another Redis, or in this one where a route asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.errors import ConfigError
from delayq.routes import Route
from delayq.targets import OK, Delivery, Result

__all__ = ["RedisStreamTarget", "is_local"]


def redis_url_of(target: str, redis_url: str) -> str:
    """The Redis behind a `redis+stream:` URL; without a host it is delayq's own."""
    return redis_url if not urlsplit(target).netloc else target.replace("redis+stream", "redis", 1)


def is_local(route: Route, redis_url: str) -> bool:
    """Whether the route's streams lie in delayq's own Redis, so that the pull script can append to them itself."""
    if route.path == "general" or urlsplit(route.target).scheme != "redis+stream":
        return False
    ours, theirs = urlsplit(redis_url), urlsplit(redis_url_of(route.target, redis_url))
    return (ours.hostname, ours.port or 6379, ours.path.strip("/") or "0") == (
        theirs.hostname, theirs.port or 6379, theirs.path.strip("/") or "0",
    )  # fmt: skip


class RedisStreamTarget:
    """Appends each message to the stream of its topic.

    At least once: an append whose reply was lost is sent again, with the same `id` in the entry.
    """

    max_batch = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self._route = route
        try:
            self._pool = redis.ConnectionPool.from_url(
                redis_url_of(url, redis_url),
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                socket_connect_timeout=2.0,
            )
        except ValueError as error:
            raise ConfigError(f"route {route.name}: the target's URL is wrong: {error}") from None

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Append a batch in one round trip."""
        try:
            connection = self._pool.get_connection()  # it connects
        except (redis.exceptions.RedisError, OSError) as error:
            return [Result.unavailable(str(error))] * len(batch)
        sent = 0
        results: list[Result] = []
        try:
            packed = [part for one in batch for part in connection.pack_command(*self._words(one))]
            sent = len(batch)
            connection.send_packed_command([b"".join(packed)], check_health=False)
            for _ in batch:
                results.append(self._result(connection, timeout))
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
            connection.disconnect()
            make = Result.unknown if sent else Result.unavailable
            results += [make(str(error))] * (len(batch) - len(results))
        finally:
            self._pool.release(connection)
        return results

    def _words(self, one: Delivery) -> list[Any]:
        words: list[Any] = ["XADD", self._route.stream_of(one.topic)]
        if self._route.max_length is not None:
            words += ("MAXLEN", "~", self._route.max_length)
        words += (
            "*", "id", one.id, "topic", one.topic, "tags", one.tags, "keys", " ".join(one.keys),
            "body", one.payload, "due", one.due, "attempt", one.attempt,
        )  # fmt: skip
        for name, value in one.properties.items():
            words += (f"p:{name}", value)
        return words

    @staticmethod
    def _result(connection: Any, timeout: float) -> Result:
        try:
            connection.read_response(timeout=timeout)
        except redis.exceptions.ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return Result.rejected(str(error))
            return Result.unavailable(str(error))
        return OK

    def close(self) -> None:
        """Close the connections."""
        self._pool.disconnect()
