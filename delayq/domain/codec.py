"""A message as the bytes in the pool, and back.

A record (offsets from 0; numbers big-endian; the Lua scripts slice it by the same offsets)::

     0   7  generation       base-64 digits, given by the script that wrote the record
     7  13  asked due        Unix ms, decimal
    20   1  mark             '0' + 1 if moved (the due first asked for follows the body)
                                 + 2 if its id is remembered when it is delivered
    21   1  flags            1 relative due · 2 has an ordering key · 4 has expireAfter · 8 has reserved keys
                             16 body is bytes · 32 body is JSON (neither: a string) · 64 expireAfter is a policy's
    22   4  lengths, 1 byte each: topic, tags, ordering key, options
    26   2  length of keys
    28   3  length of properties
    31   4  length of the body
    35   …  topic, tags, ordering key, options ("maxAttempts,expireAfter"), keys (a space between two),
            properties (2 bytes length, name, 2 bytes length, value, …; sorted by name), body. Behind the caller's keys
            stand the reserved ones, which begin with 'delayq:'
     …  13  only if moved: the due time first asked for

The bytes after the mark are the *content*. Two calls with the same content and due time are the same call. Their property
`traceparent`, their reserved keys and the expireAfter of a policy may differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache  # noqa: TID251  # the keys are topics of at most 255 characters; an exception is not kept
from hashlib import sha1
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import msgspec

from delayq.base import json_text
from delayq.base.errors import InvalidMessage
from delayq.base.interrupts import raise_if_interrupt
from delayq.domain.message import RESERVED, TRACEPARENT, Limits, Message, check_topic

RELATIVE, KEYED, EXPIRES, COUNTED, BODY_BYTES, BODY_JSON, BY_POLICY = 1, 2, 4, 8, 16, 32, 64

#: The mark that a client sends. The script replaces it.
UNMARKED: Final = b"0"
#: The mark of a message whose due time a policy has spread: the asked due time follows the content.
SPREAD: Final = b"1"
_DUE_HEAD: Final = b"%013d" + UNMARKED
DUE_HEAD_LENGTH: Final = 14
#: The bytes of the length of a body.
LENGTH_BYTES: Final = 4

CONTENT: Final = 21
_KEYS_LENGTH: Final = 26
_BODY_LENGTH: Final = 31
HEADER: Final = 35
DUE_DIGITS: Final = 13
#: The maximum number of properties of a delivered message, whatever a client allows: the scripts cannot append more at
#: once.
MOST_PROPERTIES: Final = 1_000

_LENGTHS = Struct(">BBBBBHBHI")
#: The offset of the fields in the content that is sent of a message.
_FIELDS: Final = DUE_HEAD_LENGTH + _LENGTHS.size
_TOPIC_LENGTH: Final = DUE_HEAD_LENGTH + 1
_HEADER = Struct(">7s13scBBBBBHBHI")
_TWO = Struct(">H")
_TRACEPARENT: Final = TRACEPARENT.encode()
_RESERVED: Final = RESERVED.encode()
_OPTIONS: Final = re.compile(rb"(\d*),(\d*)")
_ALL_FLAGS: Final = RELATIVE | KEYED | EXPIRES | COUNTED | BODY_BYTES | BODY_JSON | BY_POLICY


class CorruptRecord(Exception):
    """The bytes in the pool are not a record."""


def due_head(ms: int) -> bytes:
    """Return the prefix of the content for the schedule script: the due time or the delay, and an empty mark."""
    return _DUE_HEAD % ms


def encode(message: Message, limits: Limits, head: bytes = b"") -> bytes:
    """Return the content of a validated message, after `head`. Raises InvalidMessage for a body that cannot be stored."""
    flags = 0
    body: Any = message.body
    if type(body) is str:
        try:
            payload = body.encode()
        except UnicodeEncodeError:
            raise InvalidMessage("body", "is not valid Unicode (a lone surrogate); send bytes") from None
    elif isinstance(body, (bytes, bytearray, memoryview)):
        flags = BODY_BYTES
        payload = bytes(body)
    else:
        flags = BODY_JSON
        payload = json_of(body)
    if len(payload) > limits.body:
        reason = f"has {len(payload)} bytes; at most {limits.body} are allowed"
        raise InvalidMessage("body", reason, too_large=True)
    topic = message.topic.encode()
    tags = message.tags.encode()
    given = message.keys
    if message.reserved:
        given = (*given, *message.reserved)
        flags |= COUNTED
    keys = (given[0] if len(given) == 1 else " ".join(given)).encode() if given else b""
    properties = _properties(message.properties) if message.properties else b""
    ordering_key = options = b""
    if message.expect_date is None:
        flags |= RELATIVE
    if message.ordering_key:
        ordering_key = message.ordering_key.encode()
        flags |= KEYED
    if message.max_attempts is not None or message.expire_after is not None:
        numbers = (message.max_attempts, message.expire_after)
        options = ",".join("" if number is None else str(number) for number in numbers).encode()
        if message.expire_after is not None:
            flags |= EXPIRES
    size = len(properties)
    lengths = _LENGTHS.pack(
        flags,
        len(topic),
        len(tags),
        len(ordering_key),
        len(options),
        len(keys),
        size >> 16,
        size & 0xFFFF,
        len(payload),
    )
    return b"".join((head, lengths, topic, tags, ordering_key, options, keys, properties, payload))


def topic_of(body: bytes) -> bytes:
    """Return the topic of a message that was encoded after a `due_head`."""
    return body[_FIELDS : _FIELDS + body[_TOPIC_LENGTH]]


def tags_of(body: bytes) -> bytes:
    """Return its tags."""
    at = _FIELDS + body[_TOPIC_LENGTH]
    return body[at : at + body[_TOPIC_LENGTH + 1]]


def with_policy(body: bytes, reserved: Sequence[bytes], expire_after: int | None, spread: int = 0) -> bytes:
    """Return the content of a message that a policy covers.

    It has more reserved keys, an expireAfter if the message has none, and a later due time by this many ms.
    """
    if spread:
        asked, due = body[:DUE_DIGITS], b"%013d" % (int(body[:DUE_DIGITS]) + spread)
        body = due + (
            body[DUE_DIGITS:] if body[DUE_HEAD_LENGTH] & RELATIVE else SPREAD + body[DUE_HEAD_LENGTH:] + asked
        )
    if not reserved and expire_after is None:
        return body
    flags, topic, tags, ordering, options, keys, high, low, size = _LENGTHS.unpack_from(body, DUE_HEAD_LENGTH)
    options_at = _FIELDS + topic + tags + ordering
    keys_at, keys_end = options_at + options, options_at + options + keys
    words, limits = [body[keys_at:keys_end]] if keys else [], body[options_at:keys_at]
    if reserved:
        words += reserved
        flags |= COUNTED
    if expire_after is not None and not flags & EXPIRES:
        limits = (limits or b",") + b"%d" % expire_after
        flags |= EXPIRES | BY_POLICY
    told = b" ".join(words)
    lengths = _LENGTHS.pack(flags, topic, tags, ordering, len(limits), len(told), high, low, size)
    return b"".join((body[:DUE_HEAD_LENGTH], lengths, body[_FIELDS:options_at], limits, told, body[keys_end:]))


def _own_options(options: bytes) -> bytes:
    """Return the content without the expireAfter."""
    attempts, comma, _ = options.partition(b",")
    return attempts + comma if attempts else b""


def record_length(content: bytes) -> int:
    """Return the bytes of the first record of this content."""
    return CONTENT + len(content)


def around_body_length(content: bytes) -> tuple[bytes, bytes]:
    """Return the parts of a content before the length of its body and after it, to make others of the same kind."""
    return content[: _BODY_LENGTH - CONTENT], content[HEADER - CONTENT :]


def json_of(body: Any) -> bytes:
    try:
        if isinstance(body, msgspec.Raw):
            msgspec.json.decode(body)  # every consumer must be able to read it: no 1e400
            return msgspec.json.format(bytes(body), indent=-1)
        encoded = json_text.encode(body)
        if b"null" in encoded:  # NaN becomes this, too
            _refuse_nan(msgspec.to_builtins(body, enc_hook=lambda _raw: None))
        return encoded
    except RecursionError as error:
        raise_if_interrupt(error)
        raise InvalidMessage("body", "is nested too deeply; a few hundred levels are accepted") from None
    except UnicodeEncodeError as error:
        raise_if_interrupt(error)
        raise InvalidMessage("body", "has a text that is not valid Unicode (a lone surrogate)") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise_if_interrupt(error)
        # Only raw JSON is decoded.
        why = json_text.explain(bytes(body), str(error))[0] if isinstance(error, msgspec.DecodeError) else error
        raise InvalidMessage("body", f"must be a string, bytes or a JSON value ({why})") from None


def _refuse_nan(body: Any) -> None:
    """Raise InvalidMessage for a number that JSON does not have, because it would silently arrive as null."""
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidMessage("body", f"has the number {value}, which JSON does not have; use a string or null")
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, (list, tuple)):
            left.extend(value)


def property_bytes(name: str, value: str) -> bytes:
    """Return a property as it is in the content."""
    return _properties({name: value})


def _properties(properties: Mapping[str, str]) -> bytes:
    if len(properties) == 1:
        ((one, its),) = properties.items()
        first, second = one.encode(), its.encode()
        return b"".join((_TWO.pack(len(first)), first, _TWO.pack(len(second)), second))
    parts = []
    for name in sorted(properties):
        for text in (name.encode(), properties[name].encode()):
            parts.append(_TWO.pack(len(text)))
            parts.append(text)
    return b"".join(parts)


def _properties_fit(raw: bytes, at: int, end: int) -> bool:
    """Return whether the properties are names and values to the last byte, all of them text. Raises UnicodeDecodeError."""
    texts = 0
    while at + 1 < end:
        start = at + 2
        at = start + (raw[at] << 8) + raw[at + 1]
        raw[start:at].decode()
        texts += 1
    return at == end and texts % 2 == 0


def _texts(raw: bytes, at: int, end: int) -> Iterator[bytes]:
    """Yield names and values, one after the other."""
    while at < end:
        (size,) = _TWO.unpack_from(raw, at)
        yield raw[at + 2 : at + 2 + size]
        at += 2 + size


@lru_cache(maxsize=4_096)
def _topic(raw: bytes) -> str:
    """Return the topic as text. Raises ValueError for an impossible topic."""
    try:
        return check_topic(raw.decode())
    except InvalidMessage as error:
        raise ValueError(str(error)) from None


class Record:
    """A record from the pool. Fields are sliced when they are read.

    Raises CorruptRecord if any field except the body is invalid, so whoever has a Record can read it. The scripts that
    append to streams make the same checks, so that both agree on corrupt records.
    """

    __slots__ = (
        "_body_end", "_keys_end", "_options_end", "_ordering_end", "_properties_end", "_raw", "_tags_end", "_topic_end",
        "asked", "flags", "generation", "mark", "topic",
    )  # fmt: skip

    def __init__(self, raw: bytes) -> None:
        try:
            (
                self.generation,
                asked,
                mark,
                self.flags,
                topic,
                tags,
                ordering,
                options,
                keys,
                high,
                low,
                body,
            ) = _HEADER.unpack_from(raw)
            if not asked.isdigit():  # int accepts more than that: spaces, a sign, underscores
                raise ValueError(asked)
            self.asked = int(asked)
            self.mark = mark[0] - 48
        except (LookupError, ValueError, StructError) as error:
            raise_if_interrupt(error)
            raise CorruptRecord(f"a record of {len(raw)} bytes has no valid header") from error
        self._topic_end = topic_end = HEADER + topic
        self._tags_end = tags_end = topic_end + tags
        self._ordering_end = ordering_end = tags_end + ordering
        self._options_end = options_end = ordering_end + options
        self._keys_end = keys_end = options_end + keys
        self._properties_end = properties_end = keys_end + (high << 16) + low
        self._body_end = body_end = properties_end + body
        self._raw = raw
        if not 0 <= self.mark <= 3:
            raise CorruptRecord(f"its mark is {mark!r}")
        if len(raw) != body_end + (DUE_DIGITS if self.mark & 1 else 0):
            raise CorruptRecord(f"a record of {len(raw)} bytes is cut short, or longer than its lengths")
        if self.mark & 1 and not raw[body_end:].isdigit():
            raise CorruptRecord("the first asked due time is not a number")
        self._check_flags(ordering, raw[ordering_end:options_end])
        try:
            self.topic = _topic(raw[HEADER:topic_end])
            if not raw[topic_end:keys_end].isascii():
                for start, stop in ((topic_end, tags_end), (tags_end, ordering_end), (options_end, keys_end)):
                    raw[start:stop].decode()
            if properties_end > keys_end and not _properties_fit(raw, keys_end, properties_end):
                raise CorruptRecord("its properties are damaged")
        except ValueError as error:  # UnicodeDecodeError is a ValueError
            raise_if_interrupt(error)
            raise CorruptRecord(str(error)) from None

    def check_deliverable(self) -> None:
        """Raise CorruptRecord if it has more properties than can be delivered. A property takes at least 4 bytes."""
        if self._properties_end - self._keys_end > 4 * MOST_PROPERTIES:
            count = sum(1 for _ in _texts(self._raw, self._keys_end, self._properties_end)) // 2
            if count > MOST_PROPERTIES:
                raise CorruptRecord(f"it has {count} properties, but at most {MOST_PROPERTIES} are allowed")

    def _check_flags(self, ordering: int, options: bytes) -> None:
        """Return whether the flags are those of a message with this ordering key (its length) and these options."""
        flags = self.flags
        if flags & ~_ALL_FLAGS or flags & (BODY_BYTES | BODY_JSON) == BODY_BYTES | BODY_JSON:
            raise CorruptRecord(f"it has unknown flags: {flags}")
        if bool(flags & KEYED) != bool(ordering):
            raise CorruptRecord("its flags and its ordering key contradict each other")
        if options or flags & EXPIRES:
            found = _OPTIONS.fullmatch(options)
            if found is None or bool(flags & EXPIRES) != bool(found[2]):
                raise CorruptRecord("its options are damaged")

    @property
    def tags(self) -> str:
        """RocketMQ's tag, or ''."""
        return self._raw[self._topic_end : self._tags_end].decode()

    @property
    def ordering_key(self) -> str:
        """The ordering key, or ''."""
        return self._raw[self._tags_end : self._ordering_end].decode()

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys, as the caller gave them."""
        return tuple(self._own_keys().decode().split())

    @property
    def index_keys(self) -> tuple[str, ...]:
        """All keys of the message in the index, including the reserved ones."""
        return tuple(self._raw[self._options_end : self._keys_end].decode().split())

    def _own_keys(self) -> bytes:
        keys = self._raw[self._options_end : self._keys_end]
        return (b" " + keys).partition(b" " + _RESERVED)[0][1:] if self.flags & COUNTED else keys

    @property
    def max_attempts(self) -> int | None:
        """The maximum number of attempts, if the message has one."""
        return self._option(0)

    @property
    def expire_after(self) -> int | None:
        """The ms after the asked due time when it expires, if the message has them."""
        return self._option(1)

    @property
    def own_expire_after(self) -> int | None:
        """The same, if the message was scheduled with it: not that of a policy."""
        return None if self.flags & BY_POLICY else self.expire_after

    def _option(self, index: int) -> int | None:
        options = self._raw[self._ordering_end : self._options_end]
        return int(text) if options and (text := options.split(b",")[index]) else None

    @property
    def properties(self) -> dict[str, str]:
        """The properties, sorted by name."""
        at, end = self._keys_end, self._properties_end
        if at == end:
            return {}  # most have none
        texts = [text.decode() for text in _texts(self._raw, at, end)]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    @property
    def traceparent(self) -> str:
        """The trace in which it was scheduled, as W3C writes it, or ''."""
        at, end = self._keys_end, self._properties_end
        if at == end or self._raw.find(_TRACEPARENT, at, end) < 0:
            return ""
        return self.properties.get(TRACEPARENT, "")

    @property
    def payload(self) -> bytes:
        """The body's bytes, as a target gets them."""
        return self._raw[self._properties_end : self._body_end]

    @property
    def size(self) -> int:
        """The bytes of the complete record."""
        return len(self._raw)

    @property
    def content_type(self) -> str:
        """The media type of the payload, by the kind of the scheduled body."""
        if self.flags & BODY_BYTES:
            return "application/octet-stream"
        return "application/json" if self.flags & BODY_JSON else "text/plain; charset=utf-8"

    @property
    def body(self) -> Any:
        """The body as it was scheduled: a string, bytes, or a JSON value; bytes if it is damaged."""
        try:
            if self.flags & BODY_BYTES:
                return self.payload
            return msgspec.json.decode(self.payload) if self.flags & BODY_JSON else self.payload.decode()
        except ValueError as error:
            raise_if_interrupt(error)
            return self.payload

    @property
    def remembered(self) -> bool:
        """Whether its id is remembered with a digest after delivery. A message with business keys is always remembered."""
        return bool(self.mark & 2)

    @property
    def first_asked(self) -> int:
        """The due time that was requested first, before a reschedule."""
        return int(self._raw[self._body_end :]) if self.mark & 1 else self.asked

    @property
    def digest(self) -> int:
        """19 bits that a repeated call has in common with the first; `include/content.lua` computes the same."""
        asked = b"" if self.flags & RELATIVE else b"%013d" % self.first_asked
        found = sha1(self.call + asked, usedforsecurity=False).digest()
        return int.from_bytes(found[:3]) >> 5

    @property
    def call(self) -> bytes:
        """The parts that two identical calls have in common, except the due time.

        That is the content without the trace, the reserved keys and the expireAfter of a policy, and without the
        lengths of keys and properties.
        """
        raw, keys_end, properties_end = self._raw, self._keys_end, self._properties_end
        properties = raw[keys_end:properties_end]
        if _TRACEPARENT in properties:
            texts = list(_texts(raw, keys_end, properties_end))
            pairs = zip(texts[::2], texts[1::2], strict=True)
            kept = [text for pair in pairs if pair[0] != _TRACEPARENT for text in pair]
            properties = b"".join([part for text in kept for part in (_TWO.pack(len(text)), text)])
        body = raw[properties_end : self._body_end]
        flags, options = self.flags & ~COUNTED, raw[self._ordering_end : self._options_end]
        if flags & BY_POLICY:
            flags, options = flags & ~(BY_POLICY | EXPIRES), _own_options(options)
        lengths = bytes((flags, *raw[CONTENT + 1 : CONTENT + 4], len(options)))
        head = lengths + raw[_BODY_LENGTH : self._ordering_end] + options
        return head + self._own_keys() + properties + body

    @property
    def keyed(self) -> bool:
        """Whether it has an ordering key."""
        return bool(self.flags & KEYED)

    @property
    def expires_at(self) -> int | None:
        """Unix ms when it expires."""
        if not self.flags & EXPIRES or (after := self.expire_after) is None:
            return None
        return self.asked + after

    def message(self, id: str) -> Message:
        """The message, with its asked due time as `expect_date`."""
        return Message(
            topic=self.topic,
            body=self.body,
            expect_date=self.asked,
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            id=id,
            ordering_key=self.ordering_key,
            max_attempts=self.max_attempts,
            expire_after=self.expire_after,
        )
