"""Due messages as the very commands that append them to streams: what pull.lua does, written as bytes.

A `Batch` takes messages from the front for as long as they are plain; the first one that is not, and all behind it,
are left to pull.lua.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from struct import Struct
from typing import Any, Final

from hiredis import pack_command

from delayq.codec import BODY_BYTES, BODY_JSON, HEADER, KEYED, RELATIVE, CorruptRecord, Record
from delayq.message import TRACEPARENT
from delayq.store import scripts
from delayq.store.commands.command import Arg
from delayq.store.commands.final import FORWARDED, ended
from delayq.store.commands.pulling import Known, Traced
from delayq.store.keys import QueueKeys

__all__ = ["Batch", "Streams"]

_LENGTHS = Struct(">BBBBBHBHI")  # flags, topic, tags, ordering key, options, keys, properties (1 + 2 bytes), body
_LENGTHS_AT: Final = 21
_MARK_AT: Final = 20
#: What a message without `expireAfter` may have, and whether it has an ordering key then.
_FLAGS: Final = {
    time | keyed | body: bool(keyed)
    for time in (0, RELATIVE)
    for keyed in (0, KEYED)
    for body in (0, BODY_BYTES, BODY_JSON)
}
_TRACE: Final = b"p:" + TRACEPARENT.encode()
_ENTRY: Final = (
    b"%b$%d\r\n%b%b$%d\r\n%b\r\n$4\r\nkeys\r\n$%d\r\n%b\r\n$4\r\nbody\r\n$%d\r\n%b"
    b"\r\n$3\r\ndue\r\n$%d\r\n%b\r\n$7\r\nattempt\r\n$%d\r\n%b\r\n"
)


class _Stream:
    """What is the same in every entry of one topic: the words before its id, and those between id and tags."""

    __slots__ = ("before", "behind", "key", "words")

    def __init__(self, topic: bytes, key: str, max_length: int | None) -> None:
        self.key = key
        trim: list[Arg] = ["MAXLEN", "~", max_length] if max_length else []
        self.words: list[Arg] = ["XADD", key, *trim, "*", "id"]
        self.behind = b"\r\n$5\r\ntopic\r\n$%d\r\n%b\r\n$4\r\ntags\r\n" % (len(topic), topic)
        self.before = self.head(0)

    def head(self, properties: int) -> bytes:
        """How many words there are, and the first of them."""
        _, line, words = _packed(*self.words).partition(b"\r\n")
        return b"*%d%b%b" % (len(self.words) + 13 + 2 * properties, line, words)


class Streams:
    """The topics that are streams in this Redis, by what a pull is told of them; `traced`: traces are wanted."""

    def __init__(self, keys: QueueKeys, known: Iterable[Known], *, traced: bool = False) -> None:
        self.traced = traced
        self._by_topic: dict[bytes, _Stream] = {}
        for one in known:
            if (key := one.key(keys)) is not None:
                topic = one.topic.encode()
                self._by_topic[topic] = _Stream(topic, key, one.max_length)

    def of(self, topic: bytes) -> _Stream | None:
        """How to append messages of this topic; None: not this way."""
        return self._by_topic.get(topic)


class _Share:
    """What one stream is to take of a batch: its entries, the id and the due of the first."""

    __slots__ = ("due", "entries", "id")

    def __init__(self, id: bytes, due: bytes) -> None:
        self.entries: list[bytes] = []
        self.id = id
        self.due = due


class Batch:
    """Messages of one queue, the next that are due, to be appended and removed in one transaction."""

    def __init__(self, keys: QueueKeys, streams: Streams, any_attempts: bool, now: int) -> None:
        self._keys = keys
        self._streams = streams
        self._any_attempts = any_attempts
        self._now = now
        self._shares: dict[str, _Share] = {}
        self._ends = (b"", b"")
        self._ids: list[bytes] = []
        self._members: list[bytes] = []
        self._remembered: list[str | bytes] = []  # scores and ids
        self.bytes = 0
        self.traces: list[Traced] = []  # if they are wanted
        self._due = b"0"

    def __len__(self) -> int:
        return len(self._ids)

    def fill(
        self, tickets: Sequence[bytes], records: Sequence[bytes | None], attempts: Sequence[bytes | None],
        held: Collection[bytes], most_bytes: int,
    ) -> None:  # fmt: skip
        """Take those from the front that are plain and not held, up to so many bytes.

        Not plain is what pull.lua has to look at more closely: a ticket without its record, a record that cannot be
        read, one that expires, a topic that is no known stream.
        """
        find, shares = self._streams.of, self._shares
        for ticket, record, tries in zip(tickets, records, attempts or [None] * len(tickets), strict=True):
            if record is None or len(record) < HEADER or record[:7] != ticket[-7:] or ticket in held:
                break
            flags, topic, tags, ordering, options, keys, high, low, body = _LENGTHS.unpack_from(record, _LENGTHS_AT)
            a = HEADER + topic
            b = a + tags
            d = b + ordering + options
            e = d + keys
            f = e + (high << 16) + low
            mark = record[_MARK_AT] - 48
            due = record[7:20]
            stream = find(record[HEADER:a])
            plain = stream is not None and 0 <= mark <= 3 and _FLAGS.get(flags) is bool(ordering) and due.isdigit()
            if not plain or f + body + 13 * (mark & 1) != len(record) or (tries and not tries.isdigit()):
                break
            if (options or f > e or mark & 1 or not record[a:e].isascii()) and not _is_sound(record):
                break
            self.bytes += len(record)
            if self.bytes > most_bytes and self._ids:
                break
            assert stream is not None
            if due[0] == 48:
                due = b"%d" % int(due)
            attempt = b"%d" % (int(tries) + 1) if tries else b"1"
            id, head, behind = ticket[:-8], stream.before, b""
            if f > e:
                properties = _properties(record, e, f)
                head = stream.head(len(properties) // 2)
                behind = _words(properties)
                if self._streams.traced and _TRACE in properties[::2]:
                    self._see_trace(id, record[HEADER:a], attempt, properties)
            entry = _ENTRY % (
                head, len(id), id, stream.behind, tags, record[a:b], keys, record[d:e], body, record[f : f + body],
                len(due), due, len(attempt), attempt,
            ) + behind  # fmt: skip
            share = shares.get(stream.key)
            if share is None:
                share = shares[stream.key] = _Share(id, due)
            share.entries.append(entry)
            self._ids.append(id)
            self._due = due
            if keys:
                self._members += [key + b"\0" + id for key in record[d:e].split(b" ") if key]
            if mark > 1:
                self._remembered += (ended(self._now, FORWARDED, Record(record).digest), id)
            self._ends = (self._ends[0] or ticket, ticket)

    @property
    def last_due(self) -> int:
        """The due that was asked for of the last one."""
        return int(self._due)

    def _see_trace(self, id: bytes, topic: bytes, attempt: bytes, properties: list[bytes]) -> None:
        trace = properties[2 * properties[::2].index(_TRACE) + 1]
        texts = [text.decode(errors="replace") for text in (id, topic, trace)]
        self.traces.append(Traced(texts[0], texts[1], int(attempt), texts[2]))

    def transaction(self) -> list[bytes]:
        """The commands that go between MULTI and EXEC. The last one answers 1 if all was appended, 0 if nothing was.

        Stream by stream, which stays in the server's cache meanwhile; within a stream in due order.
        The scripts go as their whole texts: one that the server had forgotten would fail among commands that do not.
        """
        keys, ids = self._keys, self._ids
        emptied = keys.pool, keys.attempts, keys.index, keys.final
        names = (*emptied, *map(keys.aside, emptied))
        shares = self._shares.values()
        firsts = [word for share in shares for word in (share.id, share.due)]
        told = [word for share in shares for word in (len(share.entries), share.id, share.due)]
        commands = [
            *(share.entries[0] for share in shares),
            _script("remove", (keys.state, keys.queue, keys.guard, *names, *self._shares), (*self._ends, len(ids), *firsts)),
            *(entry for share in shares for entry in share.entries[1:]),
            _packed("HDEL", keys.pool, *ids),
        ]  # fmt: skip
        if self._any_attempts:
            commands.append(_packed("HDEL", keys.attempts, *ids))
        if self._members:
            commands.append(_packed("ZREM", keys.index, *self._members))
        if self._remembered:
            commands.append(_packed("ZADD", keys.final, *self._remembered))
        return [*commands, _script("restore", (*names, *self._shares), told)]


def _packed(*words: Arg) -> bytes:
    given: Any = words
    packed: bytes = pack_command(given)
    return packed


def _script(name: str, keys: Sequence[str], args: Sequence[Arg]) -> bytes:
    return _packed("EVAL", scripts.load(name).text, len(keys), *keys, *args)


def _is_sound(record: bytes) -> bool:
    """Whether it can be read in full."""
    try:
        Record(record)
    except CorruptRecord:
        return False
    return True


def _properties(record: bytes, at: int, end: int) -> list[bytes]:
    """Names and values, the names as fields of an entry."""
    texts = []
    while at < end:
        size = (record[at] << 8) + record[at + 1]
        texts.append(record[at + 2 : at + 2 + size])
        at += 2 + size
    texts[::2] = [b"p:" + name for name in texts[::2]]
    return texts


def _words(texts: list[bytes]) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(text), text) for text in texts])
