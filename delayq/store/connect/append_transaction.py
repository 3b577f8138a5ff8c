"""Appends due messages of one queue to streams by transactions, on a connection of its own.

    UNWATCH · announce, unless it was · WATCH guard · TIME · HMGET state · ZRANGE · EXISTS attempts      what is due
    HMGET pool · HMGET attempts · MULTI                                                           the records
    XADD of the first of each stream · remove · XADD … · HDEL … · restore · EXEC                  all, or nothing

MULTI goes ahead of the rest, which would run one by one if MULTI alone were refused.

Whatever takes a due message away, changes it, or gives the queue another owner, touches the guard: then EXEC does
nothing. After an EXEC whose reply was lost, nobody knows: either all is there or all is gone, and the next look shows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

import hiredis
import msgspec
import redis

from delayq.errors import StoreError
from delayq.store import scripts
from delayq.store.commands import Now, Retention
from delayq.store.commands.appending import Batch, Streams
from delayq.store.connect.exchange import FAULTS, translate
from delayq.store.keys import QueueKeys

__all__ = ["Appended", "Appender", "Due"]

T = TypeVar("T")
CHUNK: Final = 262_144


def _pack(*words: Any) -> bytes:
    packed: bytes = hiredis.pack_command(words)
    return packed


_MULTI = _pack("MULTI")
_EXEC = _pack("EXEC")
_DISCARD = _pack("DISCARD")
_UNWATCH = _pack("UNWATCH")


class Due(msgspec.Struct, frozen=True):
    """What is due: `found` tickets, of which `batch` has those that may go. `now` is None if nothing may be appended."""

    fenced: bool = False
    now: int | None = None
    found: int = 0
    batch: Batch | None = None


class Appended(msgspec.Struct, frozen=True):
    """How many were appended and removed; not `all` if something came between, or a stream took nothing."""

    count: int
    all: bool


class Appender:
    """See the module. `ask`, `read` and `append` follow one another; each raises StoreError, and the next begins anew.

    `make` makes a connection. Nothing is repeated here.
    """

    def __init__(self, make: Callable[[], Any], keys: QueueKeys, epoch: str, retention: Retention) -> None:
        self._make = make
        self._keys = keys
        self._epoch = epoch
        self._retention = retention
        self._connection: Any = None
        self._reader: Any = None
        self._loaded = False  # the server has the script `announce`
        self._announced = -1  # until when
        self._asked: tuple[int, int, Now] = (0, -1, "")  # replies to come, until when what was asked for is due, now
        self._look = b"".join(
            (_pack("WATCH", keys.guard), _pack("TIME"), _pack("HMGET", keys.state, "epoch", "watermark"))
        )
        self._any_attempts = _pack("EXISTS", keys.attempts)
        self._begun = False  # there is a transaction

    # -- the steps -----------------------------------------------------------------------------------------------------

    def ask(self, offset: int, upto: int, most: int, now: Now) -> None:
        """Ask for what is due from `offset` to `upto`; `read` gets it."""
        self._guarded(lambda: self._send(self._question(offset, upto, most, now)))

    def read(self, streams: Streams, held: Collection[bytes], most_bytes: int) -> Due:
        """What was asked for."""
        return self._guarded(lambda: self._read(streams, held, most_bytes))

    def append(self, batch: Batch, now: Now, ask: tuple[int, int, int] | None = None) -> Appended:
        """Append and remove a batch; `ask` for the next along with it (`offset`, `upto`, `most`)."""
        return self._guarded(lambda: self._append(batch, now, ask))

    def close(self) -> None:
        """Close the connection; the next `ask` makes another one."""
        connection, self._connection = self._connection, None
        self._loaded = self._begun = False
        self._announced = -1
        if connection is not None:
            connection.disconnect()

    # -- what is sent ----------------------------------------------------------------------------------------------------

    def _question(self, offset: int, upto: int, most: int, now: Now) -> bytes:
        keys = self._keys
        parts = [_DISCARD if self._begun else _UNWATCH]
        self._begun = False
        if upto > self._announced:
            script, names = (
                scripts.load("announce"),
                (
                    keys.state,
                    keys.guard,
                    keys.final,
                    keys.aside(keys.pool),
                    keys.index,
                ),
            )
            call = ("EVALSHA", script.sha) if self._loaded else ("EVAL", script.text)
            kept = self._retention.window, self._retention.most
            parts.append(_pack(*call, len(names), *names, self._epoch, now, upto, *kept))
        look = _pack("ZRANGE", keys.queue, offset, upto, "BYSCORE", "LIMIT", 0, most)
        # Attempts behind the tickets: what was redriven in between has both or is not seen.
        parts += (self._look, look, self._any_attempts)
        self._asked = (len(parts) + 2, upto, now)
        return b"".join(parts)

    def _read(self, streams: Streams, held: Collection[bytes], most_bytes: int) -> Due:
        replies = [self._receive() for _ in range(self._asked[0])]
        for reply in replies:
            _check(reply)
        *_, time, (epoch, watermark), tickets, any_attempts = replies
        _, upto, given = self._asked
        if len(replies) > 6:
            self._loaded = True
            if replies[1] == b"ok":
                self._announced = upto
        now = int(given) if given != "" else int(time[0]) * 1000 + int(time[1]) // 1000
        epoch = (epoch or b"").decode()
        if epoch != self._epoch or int(watermark or -1) < upto:  # a Redis that lost what it was told is told anew
            self._announced = -1
        if upto > self._announced or upto > now:
            return Due(fenced=epoch > self._epoch)
        batch = Batch(self._keys, streams, bool(any_attempts), now)
        if tickets:
            ids = [ticket[:-8] for ticket in tickets]
            asked = _pack("HMGET", self._keys.pool, *ids)
            if any_attempts:
                asked += _pack("HMGET", self._keys.attempts, *ids)
            self._send(asked + _MULTI)
            records = self._receive()
            attempts = self._receive() if any_attempts else []
            begun = self._receive()
            for reply in (records, attempts, begun):
                _check(reply)
            self._begun = True
            batch.fill(tickets, records, attempts, held, most_bytes)
        return Due(now=now, found=len(tickets), batch=batch)

    def _append(self, batch: Batch, now: Now, ask: tuple[int, int, int] | None) -> Appended:
        if not self._begun:  # another question has ended it, or its connection is gone: alone nothing may be sent
            return Appended(0, False)
        commands = batch.transaction()
        self._begun = False
        question = self._question(*ask, now) if ask is not None else b""
        self._send(b"".join((*commands, _EXEC, question)))
        refused = None
        for _ in commands:
            reply = self._receive()
            if isinstance(reply, Exception):
                refused = refused or reply
        done = self._receive()
        if refused is not None:
            raise refused
        _check(done)
        if done is not None:
            _check(done[-1])
            if done[-1] == 1:
                return Appended(len(batch), True)
        for _ in range(self._asked[0] if question else 0):
            self._receive()
        return Appended(0, False)

    # -- the connection --------------------------------------------------------------------------------------------------

    def _guarded(self, step: Callable[[], T]) -> T:
        """A step; after an error the connection is closed, and with it whatever was watched or begun."""
        try:
            return step()
        except (*FAULTS, hiredis.HiredisError) as error:
            self.close()
            if isinstance(error, hiredis.ReplyError):
                error = redis.exceptions.ResponseError(str(error))
            raise translate(error) from error
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        if self._connection is None:
            self._reader = hiredis.Reader()
            self._connection = self._make()
            if not self._connection.is_connected:
                self._connection.connect()
        # redis-py reads reply by reply, at the price of a whole message: here its socket is used as it stands.
        self._connection._sock.sendall(data)

    def _receive(self) -> Any:
        """The next reply; an error is returned."""
        while True:
            reply = self._reader.gets()
            if reply is not False:
                return reply
            if self._connection is None:
                raise StoreError("nothing was asked")
            data = self._connection._sock.recv(CHUNK)
            if not data:
                raise redis.exceptions.ConnectionError("Redis closed the connection")
            self._reader.feed(data)


def _check(reply: Any) -> None:
    if isinstance(reply, Exception):
        raise reply
