"""Properties of AMQP messages byte by byte: those that other producers write, and pika cannot."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pika

#: In the order of their flags, with the form of each.
FIELDS = {
    "content_type": "short", "content_encoding": "short", "headers": "long", "delivery_mode": "B", "priority": "B",
    "correlation_id": "short", "reply_to": "short", "expiration": "short", "message_id": "short", "timestamp": "q",
    "type": "short", "user_id": "short", "app_id": "short", "cluster_id": "short",
}  # fmt: skip


def short(raw: bytes) -> bytes:
    """A short string."""
    return bytes([len(raw)]) + raw


def long(raw: bytes) -> bytes:
    """A long string, or what is in a table or an array."""
    return struct.pack(">I", len(raw)) + raw


def field(kind: str, form: str, value: object) -> bytes:
    """A value of a header: its kind, and the number in this form of `struct`."""
    return kind.encode() + struct.pack(f">{form}", value)


def timestamp(seconds: int) -> bytes:
    """A time as the value of a header."""
    return field("T", "q", seconds)


def encoded(headers: Mapping[bytes, bytes] | None = None, **fields: bytes | int) -> bytes:
    """The properties of a message; `headers` are names and encoded values."""
    flags, parts = 0, [b""]
    given: dict[str, bytes | int] = dict(fields)
    if headers is not None:
        given["headers"] = b"".join(short(name) + value for name, value in headers.items())
    for place, (name, form) in enumerate(FIELDS.items()):
        if name in given:
            flags |= 1 << (15 - place)
            value = given.pop(name)
            if isinstance(value, bytes):
                parts.append(short(value) if form == "short" else long(value))
            else:
                parts.append(struct.pack(f">{form}", value))
    assert not given, f"AMQP has no {given}"
    return struct.pack(">H", flags) + b"".join(parts)


class RawProperties(pika.BasicProperties):  # type: ignore[misc]  # pika has no types
    """Properties that pika sends as they are."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.raw = raw

    def encode(self) -> list[bytes]:
        """The bytes."""
        return [self.raw]
