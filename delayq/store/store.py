"""The only two places that talk to Redis: `Store` (threads) and `AsyncStore` (asyncio) run commands.

redis-py's own retries are off: it would run a script again without telling. Here a command whose reply was lost on
a broken connection is run once more on a new one, which is safe because every script is idempotent; what stays
unknown is `StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import redis
import redis.asyncio
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq.errors import ConfigError, StoreError, StoreFull, StoreUnavailable
from delayq.store import scripts
from delayq.store.commands import Command

__all__ = ["AsyncStore", "Store", "Wakes"]

T = TypeVar("T")

#: Commands sent ahead of their replies: enough to keep the server busy, little enough to fit in socket buffers.
AHEAD: Final = 32
AHEAD_BYTES: Final = 1024 * 1024
_PASSING = ("BUSY", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")


def _translate(error: Exception) -> StoreError:
    text = str(error) or type(error).__name__
    if isinstance(error, StoreError):
        return error
    if isinstance(error, redis.exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return StoreFull(f"Redis has reached its maxmemory ({text})")
    if isinstance(error, (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError)):
        return StoreError(f"Redis refused the credentials or the command: {text}")
    if isinstance(error, (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError, TimeoutError)):
        return StoreUnavailable(f"Redis is away, or its reply was lost: {text}")
    if isinstance(error, (redis.exceptions.ReadOnlyError, redis.exceptions.TryAgainError)) or text.startswith(_PASSING):
        return StoreUnavailable(f"Redis takes nothing now: {text}")
    return StoreError(text)


def _broken(error: Exception) -> bool:
    """Whether the connection broke (rather than the server being slow, loading or refusing)."""
    lost = (redis.exceptions.ConnectionError, OSError)
    slow = (redis.exceptions.TimeoutError, redis.exceptions.BusyLoadingError, TimeoutError)
    return isinstance(error, lost) and not isinstance(error, slow)


def _words(command: Command[Any], flags: bool, loaded: set[str]) -> tuple[Any, ...]:
    if not command.script:
        return tuple(command.args)
    script = scripts.load(command.script, flags)
    if command.script in loaded:
        return ("EVALSHA", script.sha, len(command.keys), *command.keys, *command.args)
    loaded.add(command.script)  # the server keeps what it was given whole
    return ("EVAL", script.text, len(command.keys), *command.keys, *command.args)


class _Exchange:
    """Commands on their way: those yet to be sent, those sent and not answered, and the answers, in order."""

    def __init__(self, commands: Iterable[Command[Any]]) -> None:
        self.waiting: deque[tuple[int, Command[Any], int]] = deque()
        self.answers: list[Any] = []
        self._commands = iter(commands)
        self._again: deque[tuple[int, Command[Any]]] = deque()
        self._bytes = 0
        self._replies = 0
        self._replies_at_last_break = -1

    def to_send(self) -> Iterator[tuple[int, Command[Any]]]:
        """What is to be sent, each with its place; after a break it goes on where it was."""
        while self._again:
            yield self._again.popleft()
        for command in self._commands:
            self.answers.append(_UNANSWERED)
            yield len(self.answers) - 1, command

    def sent(self, index: int, command: Command[Any], size: int) -> None:
        self.waiting.append((index, command, size))
        self._bytes += size

    @property
    def full(self) -> bool:
        """Whether replies are to be read before more is sent."""
        return len(self.waiting) >= AHEAD or self._bytes >= AHEAD_BYTES

    def take(self) -> tuple[int, Command[Any]]:
        """The command whose reply has come."""
        index, command, size = self.waiting.popleft()
        self._bytes -= size
        self._replies += 1
        return index, command

    def broke(self, error: Exception) -> bool:
        """Whether to go on with a new connection; if not, everything without an answer gets the error.

        What was sent and not answered is sent once more, unless nothing was answered since that was done last.
        """
        again = bool(self.waiting) and _broken(error) and self._replies > self._replies_at_last_break
        self._replies_at_last_break = self._replies
        if again:
            self._again.extendleft((index, command) for index, command, _ in reversed(self.waiting))
        else:
            failed = _translate(error)
            self.answers = [failed if answer is _UNANSWERED else answer for answer in self.answers]
            self.answers.extend(failed for _ in self._commands)
        self.waiting.clear()
        self._bytes = 0
        return again


_UNANSWERED: Final = object()


def _read(command: Command[T], reply: Any) -> T | StoreError:
    try:
        return command.read(reply)
    except Exception as error:
        return StoreError(f"the reply of {command.script or 'a command'} cannot be read: {error!r}")


def _single(answers: list[T | StoreError]) -> T:
    (answer,) = answers
    if isinstance(answer, StoreError):
        raise answer
    return answer


def _options(url: str, timeout: float) -> dict[str, Any]:
    tcp = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return tcp | {
        "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 1.0), "health_check_interval": 0,
        "decode_responses": False, "protocol": 2, "max_connections": 2**31,
    }  # fmt: skip


class Store:
    """Runs commands from threads, each on a connection of its own while it runs.

    `url` is `redis://[user:password@]host:port/db`, `rediss://…` or `unix://…`; `timeout` bounds each reply and
    the wait for one of `connections`, in seconds. `flags` is False for a server that cannot read script flags.
    """

    def __init__(self, url: str, *, timeout: float = 2.0, connections: int = 64, flags: bool = True) -> None:
        self.url = url
        self._flags = flags
        self._timeout = timeout
        try:
            self._factory = redis.ConnectionPool.from_url(url, **_options(url, timeout))
            self._factory.make_connection()  # it connects to nothing yet, but refuses unknown options
        except (TypeError, ValueError, redis.exceptions.RedisError) as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._idle: list[Any] = []
        self._loaded: set[str] = set()  # scripts that the server has got from here
        self._free = threading.BoundedSemaphore(connections)

    def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return _single(self.run_many((command,)))

    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies; an error stands in its command's place.

        A lazy iterable is drawn from while the server works on what was sent before.
        """
        exchange = _Exchange(commands)
        while True:
            try:
                with self._connection() as connection:
                    self._exchange(connection, exchange)
                return exchange.answers
            except (redis.exceptions.RedisError, OSError) as error:
                self._drop_idle()
                if not exchange.broke(error):
                    return exchange.answers

    def _exchange(self, connection: Any, exchange: _Exchange) -> None:
        for index, command in exchange.to_send():
            self._send(connection, exchange, index, command)
            while exchange.full:
                self._receive(connection, exchange)
        while exchange.waiting:
            self._receive(connection, exchange)

    def _send(self, connection: Any, exchange: _Exchange, index: int, command: Command[Any]) -> None:
        words = pack_command(_words(command, self._flags, self._loaded))
        exchange.sent(index, command, len(words))
        connection.send_packed_command((words,), check_health=False)

    def _receive(self, connection: Any, exchange: _Exchange) -> None:
        try:
            reply = connection.read_response(disconnect_on_error=True)
        except redis.exceptions.NoScriptError:  # nothing ran: the whole script is sent instead
            index, command = exchange.take()
            self._loaded.discard(command.script)
            self._send(connection, exchange, index, command)
        except redis.exceptions.ResponseError as error:
            index, _ = exchange.take()
            exchange.answers[index] = _translate(error)
        else:
            index, command = exchange.take()
            exchange.answers[index] = _read(command, reply)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        if not self._free.acquire(timeout=self._timeout):
            raise redis.exceptions.ConnectionError("no connection became free in time")
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._factory.make_connection()
            try:
                if not connection.is_connected:
                    connection.connect()
                yield connection
            except BaseException:
                connection.disconnect()
                raise
            self._idle.append(connection)
        finally:
            self._free.release()

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # other threads take and drop them too
            while True:
                self._idle.pop().disconnect()

    def wakes(self) -> Wakes:
        """A subscription to wakes, on a connection of its own."""
        return Wakes(self._factory.make_connection)

    def close(self) -> None:
        """Close the idle connections."""
        self._drop_idle()


class Wakes:
    """A subscription to channels; a lost message costs lateness, never a message, so nothing here is repeated."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._connection: Any = None

    def connect(self, channels: Sequence[str]) -> None:
        """Subscribe anew; raises StoreUnavailable."""
        self.close()
        try:
            self._connection = self._make()
            self._connection.connect()
            self._connection.send_packed_command(self._connection.pack_command("SUBSCRIBE", *channels))
        except (redis.exceptions.RedisError, OSError) as error:
            self.close()
            raise _translate(error) from error

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        """The next (channel, message), or None after `timeout` seconds; raises StoreUnavailable if it broke."""
        if self._connection is None:
            raise StoreUnavailable("not subscribed; connect first")
        try:
            if not self._connection.can_read(timeout):
                return None
            kind, channel, message = self._connection.read_response()[:3]
        except (redis.exceptions.RedisError, OSError) as error:
            self.close()
            raise _translate(error) from error
        return (channel.decode(), message) if kind == b"message" else ("", b"")

    def close(self) -> None:
        """Unsubscribe."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


class AsyncStore:
    """Runs commands from one event loop; see `Store`."""

    def __init__(self, url: str, *, timeout: float = 2.0, connections: int = 32, flags: bool = True) -> None:
        self.url = url
        self._flags = flags
        self._timeout = timeout
        options = _options(url, timeout) | {"socket_timeout": None}  # one time-out around a whole exchange instead
        options["retry"] = redis.asyncio.retry.Retry(NoBackoff(), 0)
        try:
            self._factory: Any = redis.asyncio.ConnectionPool.from_url(url, **options)
            self._factory.make_connection()  # it connects to nothing yet, but refuses unknown options
        except (TypeError, ValueError, redis.exceptions.RedisError) as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._idle: list[Any] = []
        self._loaded: set[str] = set()
        self._free = asyncio.Semaphore(connections)

    async def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return _single(await self.run_many((command,)))

    async def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies; an error stands in its command's place."""
        exchange = _Exchange(commands)
        while True:
            try:
                await self._with_connection(exchange)
                return exchange.answers
            except (redis.exceptions.RedisError, OSError) as error:
                await self._drop_idle()
                if not exchange.broke(error):
                    return exchange.answers

    async def _with_connection(self, exchange: _Exchange) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise redis.exceptions.ConnectionError("no connection became free in time") from None
        try:
            connection = self._idle.pop() if self._idle else self._factory.make_connection()
            try:
                if not connection.is_connected:
                    await connection.connect()
                await self._exchange(connection, exchange)
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            self._idle.append(connection)
        finally:
            self._free.release()

    async def _exchange(self, connection: Any, exchange: _Exchange) -> None:
        # The time-out is for the server's silence, not for the length of the whole.
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(self._timeout) as bound:
            for index, command in exchange.to_send():
                await self._send(connection, exchange, index, command)
                while exchange.full:
                    await self._receive(connection, exchange)
                    bound.reschedule(clock() + self._timeout)
            while exchange.waiting:
                await self._receive(connection, exchange)
                bound.reschedule(clock() + self._timeout)

    async def _send(self, connection: Any, exchange: _Exchange, index: int, command: Command[Any]) -> None:
        packed = pack_command(tuple(_words(command, self._flags, self._loaded)))
        exchange.sent(index, command, len(packed))
        await connection.send_packed_command(packed, check_health=False)

    async def _receive(self, connection: Any, exchange: _Exchange) -> None:
        try:
            reply = await connection.read_response()
        except redis.exceptions.NoScriptError:
            index, command = exchange.take()
            self._loaded.discard(command.script)
            await self._send(connection, exchange, index, command)
        except redis.exceptions.ResponseError as error:
            index, _ = exchange.take()
            exchange.answers[index] = _translate(error)
        else:
            index, command = exchange.take()
            exchange.answers[index] = _read(command, reply)

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def close(self) -> None:
        """Close the idle connections."""
        await self._drop_idle()
