"""The tools of the stores for asyncio: connections, a bound on how many use something at once, a pause; see `threads`."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, Final

import redis
import redis.asyncio
from redis.backoff import NoBackoff

from delayq.base.clock import SystemClock, is_frozen
from delayq.base.interrupts import raise_if_interrupt
from delayq.store.connect.address import transport
from delayq.store.connect.server_state import (
    AS_FAULTS,
    CHUNK,
    EXHAUSTED,
    MISSING,
    SLOW,
    ConnectionState,
    Fault,
    Lease,
    NamedServer,
    arrived,
    connection_options,
    reader,
    usable,
)

CLOCK: Final = SystemClock()
#: Bytes that may wait in a transport; with more, a send waits too.
UNSENT: Final = 64 * 1024


class _ClosedAtOnce(redis.asyncio.connection.AbstractConnection):
    """Close without the TLS goodbye, even where redis-py closes: after a refused login or a cancelled send.

    With TLS a close waits for the server's goodbye, and without TLS until the server has read the written bytes. A loop that
    ends before would leave the socket open. A loop that continues would hold it for as long as the server hangs.
    """

    async def disconnect(self, *_args: Any, **_options: Any) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(nowait=True)


class _Tcp(_ClosedAtOnce, redis.asyncio.Connection):
    pass


class _Tls(_ClosedAtOnce, redis.asyncio.SSLConnection):
    pass


class _Unix(_ClosedAtOnce, redis.asyncio.UnixDomainSocketConnection):
    pass


_CLASSES: Final[Any] = {"unix": _Unix, "tls": _Tls, "tcp": _Tcp}


class Server(NamedServer):
    """Makes connections to one server. Refuses an invalid URL with a ValueError or TypeError."""

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout
        # No timeout for a single reply: `Connection` has its own.
        own = {"socket_timeout": None, "retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}
        self._factory: Any = redis.asyncio.ConnectionPool(
            _CLASSES[transport(url)], **(connection_options(url, timeout) | own)
        )

    async def connect(self) -> Connection:
        """Return a new connection. Raises Fault."""
        moves = self.moves
        with AS_FAULTS:
            made = self._factory.make_connection()  # redis-py opens a file for it
            try:
                async with asyncio.timeout(self._timeout):  # a hanging server accepts the connection, and never greets
                    await made.connect()
            except BaseException:
                await made.disconnect()
                raise
        return Connection(made, self, moves, self._timeout)


class Connection(ConnectionState):
    """A connection to one server, for one task at a time.

    Each send and each wait is bounded by the timeout; none begins after `until`, by the precise monotonic clock.
    """

    __slots__ = ("_made", "_reader", "_timeout")

    def __init__(self, made: Any, server: Server, moves: int, timeout: float) -> None:
        super().__init__(server, moves)
        self._made = made
        self._reader = reader()
        self._timeout = timeout

    async def send(self, packed: bytes) -> None:
        """Send commands; raises Fault."""
        if CLOCK.precise() >= self.until:
            raise Fault(TimeoutError(SLOW))
        writer = self._made._writer
        with AS_FAULTS:
            try:
                writer.write(packed)
                if writer.transport.get_write_buffer_size() > UNSENT:
                    async with asyncio.timeout(self._timeout):
                        await writer.drain()
            except RuntimeError as error:  # uvloop's error if the server has closed it while it was idle
                raise_if_interrupt(error)
                raise redis.exceptions.ConnectionError(str(error)) from None

    async def receive(self) -> Any:
        """The next reply, complete within the timeout; an error of the server's is returned (see `usable`). Raises Fault."""
        with AS_FAULTS:
            if (reply := self._reader.gets()) is MISSING:
                if CLOCK.precise() >= self.until:
                    raise TimeoutError(SLOW)
                async with asyncio.timeout(self._timeout):  # however slowly it arrives
                    while reply is MISSING:
                        self._reader.feed(arrived(await self._made._reader.read(CHUNK)))
                        reply = self._reader.gets()
        return usable(reply)

    async def close(self) -> None:
        """Close it at once; repeating it is harmless."""
        with suppress(RuntimeError):  # its loop has ended, and left nothing to close
            await self._made.disconnect()


def same_loop(known: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the running loop. Raises RuntimeError if another one is known."""
    running = asyncio.get_running_loop()
    if known is not None and known is not running:
        raise RuntimeError(
            "this client belongs to the event loop that used it first; create another client for this loop"
        )
    return running


class Semaphore:
    """Admits `most` tasks at once; the next one is refused after `timeout` seconds. It belongs to the first loop that
    uses it.
    """

    def __init__(self, most: int, timeout: float) -> None:
        self._timeout = timeout
        self._free = asyncio.Semaphore(most)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def acquire(self) -> Lease:
        """Wait for a place, and return the argument of `release`.

        Raises Fault, or RuntimeError in another loop, which could not use the connections.
        """
        self._loop = same_loop(self._loop)
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        return Lease()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise Fault(TimeoutError(EXHAUSTED)) from None

    def release(self, _lease: Lease) -> None:
        """Admit the next task."""
        self._free.release()


async def pause(seconds: float) -> None:
    """Wait."""
    if is_frozen():
        await _real_pause(seconds)
    else:
        await asyncio.sleep(seconds)


async def _real_pause(seconds: float) -> None:
    """Wait in a thread, because the time of this loop is frozen."""
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    done = loop.create_future()

    def end() -> None:
        if not done.done():
            done.set_result(None)

    def wait() -> None:
        is_over.wait(seconds)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(end)

    threading.Thread(target=wait, daemon=True).start()
    try:
        await done
    finally:
        is_over.set()
