"""The only two places that talk to Redis: `Store` (threads) and `AsyncStore` (asyncio) run commands.

redis-py's own retries are off: it would run a script again without telling. Here a command whose reply was lost on
a broken connection is run once more on a new one, which is safe because every script is idempotent; what stays
unknown is `StoreUnavailable`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import redis
import redis.asyncio
from hiredis import pack_command  # redis-py's asyncio connections would pack in Python, 7 times as slowly
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
_RETRIES: Final = 1
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


def _words(command: Command[Any], flags: bool, loaded: set[str]) -> Sequence[Any]:
    if not command.script:
        return command.args
    script = scripts.load(command.script, flags)
    if command.script in loaded:
        return ("EVALSHA", script.sha, len(command.keys), *command.keys, *command.args)
    loaded.add(command.script)  # the server keeps what it was given whole
    return ("EVAL", script.text, len(command.keys), *command.keys, *command.args)


class _Sent:
    """Commands on their way: what was sent and not answered, and the answers so far, in order."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Command[Any], int]] = deque()
        self.bytes = 0
        self.answers: list[Any] = []

    def add(self, command: Command[Any], size: int) -> None:
        self.waiting.append((len(self.answers), command, size))
        self.answers.append(None)
        self.bytes += size

    def full(self) -> bool:
        return len(self.waiting) >= AHEAD or self.bytes >= AHEAD_BYTES

    def answer(self, value: Any) -> tuple[int, Command[Any]]:
        index, command, size = self.waiting.popleft()
        self.bytes -= size
        self.answers[index] = value
        return index, command

    def fail(self, error: StoreError) -> None:
        while self.waiting:
            self.answer(error)


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
    return {
        "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, 1.0), "socket_keepalive": True, "health_check_interval": 0,
        "decode_responses": False, "protocol": 2, "lib_name": None, "lib_version": None,
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
        except ValueError as error:
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
        source = iter(commands)
        sent = _Sent()
        try:
            with self._connection() as connection:
                self._exchange(connection, source, sent)
        except (redis.exceptions.RedisError, OSError) as error:
            self._again(error, sent)
        rest = list(source)  # only when the connection broke in the middle
        if rest:
            failed = next((one for one in sent.answers if isinstance(one, StoreUnavailable)), None)
            sent.answers.extend([failed] * len(rest) if failed is not None else self.run_many(rest))
        return sent.answers

    def _exchange(self, connection: Any, source: Iterator[Command[Any]], sent: _Sent) -> None:
        unloaded: list[tuple[int, Command[Any]]] = []
        for command in source:
            words = connection.pack_command(*_words(command, self._flags, self._loaded))
            sent.add(command, sum(map(len, words)))
            connection.send_packed_command(words, check_health=False)
            while sent.full():
                unloaded.extend(self._receive(connection, sent))
        while sent.waiting:
            unloaded.extend(self._receive(connection, sent))
        for index, command in unloaded:
            words = connection.pack_command(*_words(command, self._flags, set()))
            connection.send_packed_command(words, check_health=False)
            try:
                sent.answers[index] = _read(command, connection.read_response())
            except redis.exceptions.ResponseError as error:
                sent.answers[index] = _translate(error)

    def _receive(self, connection: Any, sent: _Sent) -> list[tuple[int, Command[Any]]]:
        command = sent.waiting[0][1]
        try:
            sent.answer(_read(command, connection.read_response(disconnect_on_error=True)))
        except redis.exceptions.NoScriptError as error:  # nothing ran: the whole script is sent instead
            self._loaded.discard(command.script)
            return [sent.answer(_translate(error))]
        except redis.exceptions.ResponseError as error:
            sent.answer(_translate(error))
        return []

    def _again(self, error: Exception, sent: _Sent) -> None:
        """Run what was not answered once more if the connection broke, else it is unavailable."""
        waiting = [(index, command) for index, command, _ in sent.waiting]
        sent.fail(_translate(error))
        self._drop_idle()
        if not waiting or not _broken(error):
            return
        once = _Sent()
        try:
            with self._connection() as connection:
                self._exchange(connection, iter([command for _, command in waiting]), once)
        except (redis.exceptions.RedisError, OSError) as second:
            once.fail(_translate(second))
            once.answers.extend([_translate(second)] * (len(waiting) - len(once.answers)))
        for (index, _), answer in zip(waiting, once.answers, strict=True):
            sent.answers[index] = answer

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
        while self._idle:
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
        try:
            if not self._connection.can_read(timeout):
                return None
            kind, channel, message = self._connection.read_response()[:3]
        except (redis.exceptions.RedisError, OSError, AttributeError) as error:
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
            self._factory = redis.asyncio.ConnectionPool.from_url(url, **options)
        except ValueError as error:
            raise ConfigError(f"the Redis URL is wrong: {error}") from None
        self._idle: list[Any] = []
        self._loaded: set[str] = set()
        self._free = asyncio.Semaphore(connections)

    async def run(self, command: Command[T]) -> T:
        """Run one command and return what it read; raises StoreError."""
        return _single(await self.run_many((command,)))

    async def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        """Run commands in order, sending ahead of the replies; an error stands in its command's place."""
        source = iter(commands)
        sent = _Sent()
        try:
            await self._with_connection(source, sent)
        except (redis.exceptions.RedisError, OSError, TimeoutError) as error:
            waiting = [(index, command) for index, command, _ in sent.waiting]
            sent.fail(_translate(error))
            await self._drop_idle()
            if waiting and _broken(error):
                await self._again(waiting, sent)
        rest = list(source)
        if rest:
            failed = next((one for one in sent.answers if isinstance(one, StoreUnavailable)), None)
            sent.answers.extend([failed] * len(rest) if failed is not None else await self.run_many(rest))
        return sent.answers

    async def _again(self, waiting: list[tuple[int, Command[Any]]], sent: _Sent) -> None:
        once = _Sent()
        try:
            await self._with_connection(iter([command for _, command in waiting]), once)
        except (redis.exceptions.RedisError, OSError, TimeoutError) as second:
            once.fail(_translate(second))
            once.answers.extend([_translate(second)] * (len(waiting) - len(once.answers)))
        for (index, _), answer in zip(waiting, once.answers, strict=True):
            sent.answers[index] = answer

    async def _with_connection(self, source: Iterator[Command[Any]], sent: _Sent) -> None:
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
                await self._exchange(connection, source, sent)
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
            self._idle.append(connection)
        finally:
            self._free.release()

    async def _exchange(self, connection: Any, source: Iterator[Command[Any]], sent: _Sent) -> None:
        # The time-out is for the server's silence, not for the length of the whole.
        async with asyncio.timeout(self._timeout) as bound:
            unloaded: list[tuple[int, Command[Any]]] = []
            for command in source:
                packed = pack_command(_words(command, self._flags, self._loaded))
                sent.add(command, len(packed))
                await connection.send_packed_command(packed, check_health=False)
                while sent.full():
                    unloaded.extend(await self._receive(connection, sent))
                    bound.reschedule(time.monotonic() + self._timeout)
            while sent.waiting:
                unloaded.extend(await self._receive(connection, sent))
                bound.reschedule(time.monotonic() + self._timeout)
            for index, command in unloaded:
                packed = pack_command(_words(command, self._flags, set()))
                await connection.send_packed_command(packed, check_health=False)
                try:
                    sent.answers[index] = _read(command, await connection.read_response())
                except redis.exceptions.ResponseError as error:
                    sent.answers[index] = _translate(error)

    async def _receive(self, connection: Any, sent: _Sent) -> list[tuple[int, Command[Any]]]:
        command = sent.waiting[0][1]
        try:
            sent.answer(_read(command, await connection.read_response()))
        except redis.exceptions.NoScriptError as error:
            self._loaded.discard(command.script)
            return [sent.answer(_translate(error))]
        except redis.exceptions.ResponseError as error:
            sent.answer(_translate(error))
        return []

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def close(self) -> None:
        """Close the idle connections."""
        await self._drop_idle()
