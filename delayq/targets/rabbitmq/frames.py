"""AMQP 0-9-1 frames of published messages.

pika writes them one by one, each with its own system call: three for a message. A batch that is written at once costs a
fraction of that, here and in the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import pika

from delayq.targets.rabbitmq.passthrough import SHORT

PERSISTENT: Final = 2
#: Bytes of a frame around its content.
FRAME_BYTES: Final = 8
_METHOD, _HEADER, _BODY = 1, 2, 3
_END: Final = b"\xce"
_BASIC: Final = 60
_PUBLISH: Final = 40
_MANDATORY: Final = b"\1"

_FRAME = Struct(">BHI")  # type, channel, size
_IDS = Struct(">HHH")  # class, method, a reserved field
_CONTENT = Struct(">HHQ")  # class, weight, size of the body
_LONG = Struct(">I")
#: The headers that each message has, with their types: a long long and a long.
_OWN = Struct(">11scq15sci")
_DUE, _ATTEMPT = b"\x0adelayq-due", b"\x0edelayq-attempt"
_TIME = Struct(">Q")
#: Bytes of the frame of flags and properties around those.
CONTENT_BYTES: Final = FRAME_BYTES + _CONTENT.size
_Properties = pika.BasicProperties
_FLAGS: Final = Struct(">H").pack(
    _Properties.FLAG_CONTENT_TYPE
    | _Properties.FLAG_HEADERS
    | _Properties.FLAG_DELIVERY_MODE
    | _Properties.FLAG_MESSAGE_ID
    | _Properties.FLAG_TIMESTAMP
    | _Properties.FLAG_TYPE
    | _Properties.FLAG_APP_ID
)
_MODE: Final = bytes((PERSISTENT,))
_APP: Final = b"\x06delayq"


def short(text: str) -> bytes:
    """Return a short string. Raises ValueError if it is longer than 255 bytes."""
    raw = text.encode()
    if len(raw) > SHORT:
        raise ValueError(f"{text[:40]!r}… is longer than {SHORT} bytes")
    return bytes((len(raw),)) + raw


def publish_method(exchange: str, routing_key: str) -> bytes:
    """The method that names the destination of the next message, which is returned if no queue takes it."""
    return _IDS.pack(_BASIC, _PUBLISH, 0) + short(exchange) + short(routing_key) + _MANDATORY


def content_header(
    id: str, due: int, attempt: int, content_type: str, type: str, headers: Mapping[str, str], given: Mapping[str, Any]
) -> bytes:
    """Return flags and properties of a persistent message; `given` are AMQP properties that replace delayq's.

    Raises ValueError for invalid values.
    """
    if given:
        own = {"delayq-due": due, "delayq-attempt": attempt, **headers}
        fields = {"content_type": content_type, "type": type, "app_id": "delayq", **given}
        properties = pika.BasicProperties(
            delivery_mode=PERSISTENT, message_id=id, timestamp=due // 1000, headers=own, **fields
        )
        return b"".join(properties.encode())
    table = [_OWN.pack(_DUE, b"l", due, _ATTEMPT, b"I", attempt)]
    size = _OWN.size
    for name, value in headers.items():
        key, raw = short(name), value.encode()
        table += (key, b"S", _LONG.pack(len(raw)), raw)
        size += len(key) + 5 + len(raw)
    return b"".join(
        (
            _FLAGS,
            short(content_type),
            _LONG.pack(size),
            *table,
            _MODE,
            short(id),
            _TIME.pack(due // 1000),
            short(type),
            _APP,
        )
    )


def frames_of(channel: int, most: int, method: bytes, header: bytes, body: bytes) -> list[bytes]:
    """Return the frames of a message in parts to be joined; none of its frames is larger than `most` bytes."""
    size = len(body)
    parts = [
        _FRAME.pack(_METHOD, channel, len(method)), method, _END,
        _FRAME.pack(_HEADER, channel, len(header) + _CONTENT.size), _CONTENT.pack(_BASIC, 0, size), header, _END,
    ]  # fmt: skip
    step = most - FRAME_BYTES
    if size <= step:
        if size:
            parts += (_FRAME.pack(_BODY, channel, size), body, _END)
        return parts
    for start in range(0, size, step):
        some = body[start : start + step]
        parts += (_FRAME.pack(_BODY, channel, len(some)), some, _END)
    return parts
