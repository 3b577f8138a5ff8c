"""One server: how redis-py makes connections to it and reads its errors, and the known state of the server.

redis-py must never repeat anything itself.

A script whose answer is a promise gets a deadline by the clock of the server, and does nothing after it. When the caller
gives up, a delayed command must not run later, after newer calls. `TIME` compares the server's clock with the monotonic
one here. That happens before the first such script, and again before a script that follows a second later or more. The
former answer counts no longer then. The clock may have been set back since by so little that a slow answer does not show
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Self

import hiredis
import redis
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.base.clock import Clock, SystemClock
from delayq.base.interrupts import raise_if_interrupt
from delayq.store.commands import Arg, Command, plain
from delayq.store.connect.address import arguments, transport

#: The largest age of a server's time, in ms.
ASK_EVERY: Final = 1_000
#: The bytes of one read.
CHUNK: Final = 65_536
#: Stands for a reply that has not arrived completely.
MISSING: Final = object()
#: The error of a caller who waited in vain for a free connection.
EXHAUSTED: Final = "no connection became free in time"
#: The error for replies that would take longer than their caller waits.
SLOW: Final = "the reply came too slowly"
#: The code of an error, bare or where a script, a transaction or a proxy quotes it.
_WRONG_SERVER: Final = re.compile(r"(?:^|: -?|-)(?:READONLY|MASTERDOWN|NOREPLICAS)\b")


#: The errors of redis-py and the system on the way to a server.
IO_ERRORS: Final = (redis.exceptions.RedisError, OSError)


#: The kinds of servers by their `mode`, and the URL for each.
_KINDS: Final = {
    "standalone": ("a single Redis server", "redis://HOST:PORT/0"),
    "cluster": ("a node of a Redis Cluster", "redis+cluster://HOST:PORT"),
    "sentinel": ("a Sentinel", "redis+sentinel://HOST:PORT/SERVICE"),
}


class WrongKind(redis.exceptions.RedisError):
    """The server is of another kind than the URL. Nothing was sent to it but the question for its kind."""

    @classmethod
    def of(cls, mode: str, scheme: str) -> Self:
        """Return the error of a server with this mode, for a URL of this scheme."""
        kind, url = _KINDS.get(mode, (f"a server of the kind {mode!r:.30}", "redis://HOST:PORT/0"))
        return cls(f"the Redis URL is wrong: it begins with {scheme}://, but the server is {kind}; use {url}")


def mode_in(reply: Any) -> str:
    """Return the mode in the reply to HELLO: 'standalone', 'cluster' or 'sentinel'; '' if it has none."""
    if not isinstance(reply, list):
        return ""
    fields = dict(zip(reply[::2], reply[1::2], strict=False))
    mode = fields.get(b"mode", b"")
    return mode.decode(errors="replace") if isinstance(mode, bytes) else ""


class Fault(Exception):
    """A fault between here and a server; `error` is the exception of redis-py or the system.

    Only the code of the I/O raises it. An exception of a signal handler or of the caller's own code may also be an OSError or
    an error of redis-py. It never counts as a fault: it reaches the caller.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class NamedServer:
    """A server by its name, which may lead to another one later; `moves` counts how often a wrong one was found there."""

    def __init__(self) -> None:
        self.moves = 0

    def outdate(self) -> None:
        """Mark every connection made so far as `outdated`: the next one resolves the name again."""
        self.moves += 1


class ConnectionState:
    """The common state of both kinds of connections: their server, the end of their use, and their lease."""

    __slots__ = ("_moves", "_server", "lease", "until")

    def __init__(self, server: NamedServer, moves: int) -> None:
        self.until = inf
        self.lease: Lease | None = None
        self._server = server
        self._moves = moves

    @property
    def outdated(self) -> bool:
        """Whether the name may lead to another server now: the connection must not be used again."""
        return self._moves != self._server.moves


class Lease:
    """The use of one place of a semaphore, as long as it lasts."""

    __slots__ = ("__weakref__",)


class _AsFaults:
    """Convert exceptions of I/O to a Fault. The exception of a signal handler stays as it is."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, IO_ERRORS):
            raise_if_interrupt(error)
            raise Fault(error) from error


AS_FAULTS: Final = _AsFaults()


#: redis-py before 7 knows these codes only in its own client of clusters.
_OF_CLUSTERS: Final[Mapping[str, Callable[[str], Exception]]] = {
    "ASK": redis.exceptions.AskError,
    "CLUSTERDOWN": redis.exceptions.ClusterDownError,
    "CROSSSLOT": redis.exceptions.ClusterCrossSlotError,
    "MOVED": redis.exceptions.MovedError,
    "TRYAGAIN": redis.exceptions.TryAgainError,
}


class WrongServer(redis.exceptions.ReadOnlyError):
    """A server answers that it is not the primary, or that it lost its replicas. The command did not run.

    This is a state of the connection, not of the service: the name may lead to another server now.
    """


def connection_options(url: str, timeout: float) -> dict[str, Any]:
    """The arguments for redis-py of a connection whose sends and replies take at most `timeout` seconds each.

    Making a connection may take half as long. Raises ValueError.
    """
    given = arguments(url)
    tcp: dict[str, Any] = {} if "path" in given else {"socket_keepalive": True}
    if transport(url) == "tls":  # redis-py before 6 accepts a certificate for any host
        tcp["ssl_check_hostname"] = given.get("ssl_cert_reqs") != "none"
    named = {name: value for name, value in given.items() if "path" not in given or name not in ("host", "port")}
    return {
        "socket_connect_timeout": timeout / 2,
        **tcp,
        **named,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "socket_timeout": timeout,
        "health_check_interval": 0,
        "decode_responses": False,
        "protocol": 2,
        "max_connections": 2**31,  # redis-py counts all connections ever made; the stores have a bound of their own
    }


def packed(*words: Arg) -> bytes:
    """Return a command as it is sent."""
    # hiredis crashes if a signal handler raises while it makes the text of a number.
    told: Any = tuple([word if isinstance(word, (bytes, str)) else str(word) for word in words])
    whole: bytes = pack_command(told)
    return whole


class Packer:
    """Packs the commands that redis-py itself sends on a new connection of threads, such as SELECT. For asyncio it
    needs no hiredis.
    """

    def pack(self, *words: Any) -> list[bytes]:
        """Return a command in one piece."""
        name, *rest = words
        return [packed(*name.split(), *rest)]


def reader() -> Any:
    """Makes replies of bytes. An error of the server becomes the exception of redis-py."""
    return hiredis.Reader(
        protocolError=redis.exceptions.InvalidResponse,
        replyError=read_error,
        notEnoughData=MISSING,
    )


def read_error(text: str) -> Exception:
    """Return the exception for the text of an error reply."""
    if _WRONG_SERVER.search(text):
        return WrongServer(text)
    code, _, rest = text.partition(" ")
    if (kind := _OF_CLUSTERS.get(code)) is not None:
        return kind(rest)
    parse: Any = redis.connection.DefaultParser.parse_error
    error: Exception = parse(text)
    return error


def arrived(read: Any) -> Any:
    """The bytes read, or their number. Raises ConnectionError if there are none."""
    if not read:
        raise redis.exceptions.ConnectionError("Redis closed the connection")
    return read


def usable(reply: Any) -> Any:
    """The reply, also if it is an error. Raises a Fault if the connection is useless, as while data are loaded."""
    if isinstance(reply, redis.exceptions.ConnectionError):
        raise Fault(reply)
    return reply


def late_by(error: Exception) -> int | None:
    """Return the server's time (Unix ms), if it refused a script because its deadline had passed: nothing ran."""
    word, _, time = str(error).partition(" ")
    return int(time) if isinstance(error, redis.exceptions.ResponseError) and word == "EXPIRED" else None


class ServerState:
    """One server; `timeout` is how long a caller waits for each reply, in seconds.

    `idle` are the unused connections to it, on which nothing is on its way.
    """

    def __init__(self, timeout: float, clock: Clock | None = None) -> None:
        self.idle: list[Any] = []
        self.loaded: set[str] = set()  # the scripts that it has
        self.moved_in = ""  # the key with the time that `advance` has moved, on a development server
        self._timeout = int(timeout * 1000)
        self._clock = clock if clock is not None else SystemClock()
        self._ahead: int | None = None  # the least ms that it is ahead of the local clock
        self._asked: int | None = None  # when the question of its last answer was sent

    def lend(self) -> Any:
        """Return an idle connection; None if there is none. Several threads may call it."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    @property
    def stale(self) -> bool:
        """Return whether its clock must be read before a script that has a deadline."""
        return self._asked is None or self._clock.monotonic() - self._asked >= ASK_EVERY

    def ask(self) -> Command[None]:
        """The question for its clock."""
        sent = self._clock.monotonic()

        def read(reply: Any) -> None:
            seconds, micros = reply
            self.learn(int(seconds) * 1000 + int(micros) // 1000)
            self._asked = sent

        return plain("TIME", read=read)

    def learn(self, time: int) -> None:
        """Its clock had this time (Unix ms), now or some time ago."""
        self._ahead = time - self._clock.monotonic() - 1

    def deadline(self) -> Arg:
        """Return the deadline (by its clock) of a script that is sent now; never later than the caller waits."""
        return "" if self._ahead is None else self._clock.monotonic() + self._timeout + self._ahead

    def forget(self) -> None:
        """Record that a connection broke: the next one may lead to another server, which is asked before it gets a
        script.

        The time of the clock stays: another thread may be about to send a script for which it has just asked.
        """
        self._asked = None
