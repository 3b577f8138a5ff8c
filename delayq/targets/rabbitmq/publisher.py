"""A channel in confirm mode, which publishes one group of messages after the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.exceptions import ChannelClosedByBroker

from delayq.targets import OK, Result
from delayq.targets.rabbitmq.batch import Batch, Group, Outgoing
from delayq.targets.rabbitmq.errors import words_of
from delayq.targets.rabbitmq.frames import CONTENT_BYTES, frames_of

PRECONDITION_FAILED: Final = 406
#: Frames of small messages are written in pieces of about this many bytes.
PIECE_BYTES: Final = 1 << 16
_TOO_LARGE = re.compile(r"message size \d+ is larger than configured max size (\d+)")


class Learned:
    """The limits that the broker has reported on this connection."""

    def __init__(self) -> None:
        #: The largest body that it takes, bytes, once it has reported that.
        self.most: int | None = None
        #: Counts the broker's reports on messages.
        self.heard = 0
        #: The bytes that fit into a frame.
        self.frame: int = 4_096
        #: Ids of messages of which one made it close a channel. Smaller and smaller groups find that one.
        self.suspects: set[str] = set()

    def refused(self, one: Outgoing) -> Result | None:
        """A fault for which the broker would close the channel or the connection."""
        if self.most is not None and len(one.body) > self.most:
            return _too_large(one.body, self.most)
        if (size := len(one.header) + CONTENT_BYTES) > self.frame:
            return Result.rejected(
                f"its headers have {size} bytes, but a frame of this broker has at most {self.frame}"
            )
        return None


class Publisher:
    """A channel in confirm mode for one exchange; at most one group of a batch uses it at a time."""

    def __init__(
        self,
        exchange: str,
        channel: Any,
        learned: Learned,
        *,
        written: Callable[[int, int], None],
        free: Callable[[Publisher], None],
        gone: Callable[[Publisher], None],
    ) -> None:
        self.exchange = exchange
        self.channel = channel
        self._learned = learned
        self._written = written
        self._free = free
        self._gone = gone
        self._tag = 0
        self._batch: Batch | None = None
        self._group: Group = ()
        self._sent: list[Outgoing] = []  # of the group, those that went out: the last `len` tags
        self._pending: dict[int, int] = {}  # delivery tag to place
        self._returned: dict[str, list[str]] = {}  # id to the broker's words
        channel.add_on_close_callback(self._closed)
        channel.add_on_return_callback(self._on_return)

    @property
    def usable(self) -> bool:
        """Whether it is open, and nothing is on its way that somebody has given up."""
        return not self._pending and bool(self.channel.is_open)

    @property
    def batch(self) -> Batch | None:
        """The messages that it is sending."""
        return self._batch

    def begin(self, batch: Batch, group: Group) -> None:
        """Take a group; published at once if the channel is ready."""
        self._batch, self._group = batch, group
        if self._tag:
            self._publish()

    def confirm(self) -> None:
        """The channel is open: have it confirm, then publish."""
        self.channel.confirm_delivery(self._confirmed, callback=self._ready)

    def _ready(self, _: object) -> None:
        self._learned.heard += 1
        self._tag = 1
        self._publish()

    def _publish(self) -> None:
        batch = self._batch
        if batch is None or not batch.publishing(self._group):
            self._end()
            return
        if not self.channel.is_open:
            batch.settle_rest_as([place for place, _ in self._group], Result.unavailable("the channel is closed"))
            self._end()
            return
        pending, tag, number = self._pending, self._tag, self.channel.channel_number
        learned = self._learned
        sent: list[Outgoing] = []
        parts: list[bytes] = []
        pieces: list[bytes] = []
        size = 0
        for place, one in self._group:
            if refused := learned.refused(one):
                batch.settle(place, refused)
                continue
            parts += frames_of(number, learned.frame, one.method, one.header, one.body)
            pending[tag] = place
            sent.append(one)
            tag += 1
            size += len(one.body)
            if size >= PIECE_BYTES:
                # If the socket takes only a part of a piece, the rest is copied. So no piece is very large.
                pieces += parts if len(one.body) >= PIECE_BYTES else [b"".join(parts)]
                parts, size = [], 0
        if pending:
            # Does for all frames at once what pika does for those of one message, without a public method.
            connection = self.channel.connection
            connection._output_marshaled_frames([*pieces, b"".join(parts)] if parts else pieces)
            self._written(connection.bytes_sent, batch.deadline)
        self._tag, self._sent = tag, sent
        if not pending:
            self._end()

    def _on_return(self, _: Any, method: Any, properties: Any, __: bytes) -> None:
        words = f"{method.reply_code} {method.reply_text}"
        self._returned.setdefault(properties.message_id, []).append(words)

    def _confirmed(self, frame: Any) -> None:
        self._learned.heard += 1
        method = frame.method
        tag: int = method.delivery_tag
        tags = [one for one in self._pending if one <= tag] if method.multiple else [tag]
        acked = isinstance(method, pika.spec.Basic.Ack)
        batch = self._batch
        for one in tags:
            place = self._pending.pop(one, None)
            if place is not None and batch is not None:
                batch.settle(place, self._judge(one) if acked else Result.unavailable("the broker answered nack"))
        if not self._pending:
            self._end()

    def _judge(self, tag: int) -> Result:
        if not self._returned:
            return OK
        one = self._sent[tag - self._tag]
        said = self._returned.get(one.id)
        if not said:
            return OK
        where = f"exchange {one.exchange!r}, routing key {one.routing_key!r}"
        return Result.unavailable(f"unroutable: {said.pop()} ({where})")

    def _end(self) -> None:
        """All of the group have their word, or nobody waits for them: free for the next one."""
        self._batch, self._group = None, ()
        self._returned.clear()
        self._free(self)

    def _closed(self, _: Any, error: BaseException) -> None:
        batch, group = self._batch, self._group
        self._batch, self._group = None, ()
        self._gone(self)
        if batch is None:
            return
        places = [place for place, _ in group if batch.results[place] is None]
        if not isinstance(error, ChannelClosedByBroker):
            batch.settle_rest(places, f"the connection was lost: {words_of(error)}")
            return
        reason = f"{error.reply_code} {error.reply_text}"
        if error.reply_code == PRECONDITION_FAILED:
            self._poisoned(batch, group, places, reason)
            return
        # Not for one message: no such exchange, no right to it. So it took none, unless it has taken some before.
        if len(places) == len(group):
            batch.settle_rest_as(places, Result.unavailable(reason))
        batch.settle_rest(places, reason)

    def _poisoned(self, batch: Batch, group: Group, places: list[int], reason: str) -> None:
        """One of the messages was not to the broker's liking, and it looked at none behind it."""
        if found := _TOO_LARGE.search(reason):
            limit = self._learned.most = int(found.group(1))
            guilty = next((index for index, (_, one) in enumerate(group) if len(one.body) > limit), len(group))
            for index, (place, one) in enumerate(group):
                if len(one.body) > limit:
                    batch.settle(place, _too_large(one.body, limit))
                elif index > guilty:
                    batch.settle(place, Result.unavailable(f"a message before it was refused: {reason}"))
        elif len(group) == 1:
            batch.settle_rest_as(places, Result.rejected(reason))
        else:
            self._learned.suspects.update(one.id for place, one in group if batch.results[place] is None)
        batch.settle_rest(places, f"one of the messages was refused: {reason}")


def _too_large(body: bytes, limit: int) -> Result:
    """The result of a message that is larger than the broker takes."""
    return Result.rejected(f"{len(body)} bytes, and the broker takes no more than {limit}")
