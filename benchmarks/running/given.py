"""A Redis, a group behind sentinels or a Redis Cluster of one's own that a benchmark uses instead of a fresh server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec
import redis

from benchmarks.errors import BenchmarkError
from benchmarks.load.messages import TOPICS
from delayq.store.connect.address import CLUSTER, SENTINEL, parse, without_secrets
from delayq.store.connect.sentinel import Primary

__all__ = ["Given", "allocator", "connect", "given"]

_PATIENCE: Final = 60.0


class Given(msgspec.Struct, frozen=True):
    """Where it is. Its processes may run on another machine, so nothing is known of them."""

    url: str
    pid: int | None = None


def connect(url: str) -> Any:
    """A plain client, to look at what is there; of a group behind sentinels a client of its primary of now."""
    address = parse(url)
    if address.kind == CLUSTER:
        return redis.RedisCluster.from_url(address.url_of(address.nodes[0]), protocol=2, socket_timeout=_PATIENCE)
    if address.kind == SENTINEL:
        found = Primary(address, _PATIENCE).connect()
        url = address.url_of(found.address)
        found.close()
    return redis.Redis.from_url(url, protocol=2, socket_timeout=_PATIENCE)


def allocator(url: str) -> str:
    """What a server allocates its memory with."""
    with closing(connect(url)) as connection:
        return str(connection.info("memory")["mem_allocator"])


@contextmanager
def given(url: str) -> Iterator[Given]:
    """That Redis, which must not know delayq yet; what a benchmark leaves there is deleted."""
    with closing(connect(url)) as connection:
        if connection.exists("delayq:meta") or any(connection.exists(topic) for topic in TOPICS):
            raise BenchmarkError(f"{without_secrets(url)} is in use: a benchmark needs a Redis without any delayq data")
    try:
        yield Given(url)
    finally:
        with closing(connect(url)) as connection:
            for name in [*connection.scan_iter(match="delayq:*", count=1000), *TOPICS]:
                connection.delete(name)
