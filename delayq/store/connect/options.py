"""How redis-py is to make connections, and read errors: it must never repeat anything by itself."""

from __future__ import annotations

from typing import Any, Final

import hiredis
import redis
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.store.commands import Arg

__all__ = ["CHUNK", "EXHAUSTED", "MISSING", "SLOW", "connection_options", "packed", "pin", "reader", "usable"]

#: How much is read at once, in bytes.
CHUNK: Final = 65_536
#: What a reader has instead of a reply that has not come whole.
MISSING: Final = object()
#: What is told to one who waited in vain for others to be done with their connections.
EXHAUSTED: Final = "no connection became free in time"
#: What is told of replies that come, but would take longer than their caller waits.
SLOW: Final = "the reply came too slowly"


def connection_options(url: str, timeout: float) -> dict[str, Any]:
    """Of a connection whose sends and replies take no longer than `timeout` seconds each."""
    tcp = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return tcp | {
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 1.0),
        "health_check_interval": 0,
        "decode_responses": False,
        "protocol": 2,
    }


def pin(factory: Any) -> None:
    """Set on what makes connections what no URL may change; in a URL, an option outweighs those given beside it."""
    factory.connection_kwargs["protocol"] = 2
    factory.max_connections = 2**31  # it counts all that it ever made; the stores have a bound of their own


def packed(*words: Arg) -> bytes:
    """A command as it is sent."""
    told: Any = words
    whole: bytes = pack_command(told)
    return whole


def reader() -> Any:
    """Makes replies of bytes; an error of the server's becomes the one that redis-py has for it."""
    return hiredis.Reader(
        protocolError=redis.exceptions.InvalidResponse,
        replyError=redis.connection.DefaultParser.parse_error,
        notEnoughData=MISSING,
    )


def usable(reply: Any) -> Any:
    """The reply, also if it is an error; raises one that says that the connection is of no use, as while data are loaded."""
    if isinstance(reply, redis.exceptions.ConnectionError):
        raise reply
    return reply
