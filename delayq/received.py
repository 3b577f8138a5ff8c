"""For consumers: read a delivered message, whatever target brought it. `client.hand_back` takes what these functions return.

    message = read_kafka(record.topic(), record.headers(), record.value())

Webhooks have their own module, `delayq.webhooks`, because their signature has to be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.base.times import LATEST
from delayq.domain.message import HAND_BACKS_PROPERTY, TRACEPARENT, text_of, value_of

__all__ = ["Received", "read_kafka", "read_rabbitmq", "read_rocketmq", "read_stream"]

#: Headers that delayq itself writes for RabbitMQ. They are no properties.
_RABBITMQ: Final = frozenset({"delayq-due", "delayq-attempt", "delayq-tags", "delayq-keys", "delayq-ordering-key"})
#: Headers that RabbitMQ adds when it delivers a message again, or when a queue gave it up.
_BROKERS: Final = ("x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-")
_ROCKETMQ: Final = "delayq_"
#: No number of delayq has more digits.
_DIGITS: Final = len(str(LATEST))
_names = msgspec.json.Decoder(list[str])
Headers = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message.

    `body` is bytes; `text` and `json()` read it. `due` is Unix ms, and `attempt` is 1 for the first attempt. A message may
    arrive twice, with the same `id`: remember the ids that you have handled. `content_type` is empty if the target does not
    carry it.
    """

    id: str
    topic: str
    due: int
    attempt: int = 1
    tags: str = ""
    keys: tuple[str, ...] = ()
    ordering_key: str = ""
    properties: dict[str, str] = {}
    body: bytes
    content_type: str = ""

    @property
    def hand_backs(self) -> int:
        """How often consumers have handed it back."""
        count = self.properties.get(HAND_BACKS_PROPERTY, "")
        return int(count) if count.isascii() and count.isdigit() and len(count) <= _DIGITS else 0

    @property
    def text(self) -> str:
        """The body as text. Raises InvalidMessage if it is not UTF-8."""
        return text_of(self.body)

    def json(self) -> Any:
        """Return the value of a body that is JSON. Raises InvalidMessage for any other body."""
        return value_of(self.body)


def read_stream(fields: Mapping[Any, Any]) -> Received:
    """Read an entry of a Redis Stream, as XREADGROUP returns its fields. Raises InvalidMessage if delayq did not add it."""
    found = _texts(fields, but="body")
    return Received(
        id=_need(found, "id"),
        topic=_need(found, "topic"),
        due=_number(found, "due"),
        attempt=_number(found, "attempt", 1),
        tags=found.get("tags", ""),
        keys=tuple(found.get("keys", "").split()),
        ordering_key=found.get("orderingKey", ""),
        properties={name[2:]: value for name, value in found.items() if name.startswith("p:")},
        body=_bytes(fields.get(b"body", fields.get("body", b""))),
    )


def read_kafka(topic: str, headers: Headers | None, value: bytes | None) -> Received:
    """Read a record that was consumed from a topic. Raises InvalidMessage if delayq did not send it."""
    found = _texts(headers or {})
    properties = {name[2:]: value for name, value in found.items() if name.startswith("p:")}
    if TRACEPARENT in found:
        properties[TRACEPARENT] = found[TRACEPARENT]
    return Received(
        id=_need(found, "id"),
        topic=found.get("topic", topic),
        due=_number(found, "due"),
        attempt=_number(found, "attempt", 1),
        tags=found.get("tags", ""),
        keys=tuple(found.get("keys", "").split()),
        ordering_key=found.get("ordering-key", ""),
        properties=properties,
        body=value or b"",
        content_type=found.get("content-type", ""),
    )


def read_rabbitmq(properties: Any, body: bytes) -> Received:
    """Read a message of RabbitMQ. `properties` are pika's BasicProperties, or a message of aio-pika.

    Raises InvalidMessage if delayq did not send it.
    """
    headers: Mapping[str, Any] = properties.headers or {}
    found = {name: str(value) for name, value in headers.items() if name in _RABBITMQ}
    own = {
        name: value if isinstance(value, str) else str(value)
        for name, value in headers.items()
        if name not in _RABBITMQ and isinstance(value, str | int | float) and not name.startswith(_BROKERS)
    }
    given = {"message_id": properties.message_id or "", "type": properties.type or ""}
    return Received(
        id=_need(given, "message_id"),
        topic=_need(given, "type"),
        due=_number(found, "delayq-due"),
        attempt=_number(found, "delayq-attempt", 1),
        tags=found.get("delayq-tags", ""),
        keys=tuple(found.get("delayq-keys", "").split()),
        ordering_key=found.get("delayq-ordering-key", ""),
        properties=own,
        body=body,
        content_type=properties.content_type or "",
    )


def read_rocketmq(message: Any) -> Received:
    """Read a message of the package rocketmq-python-client. Raises InvalidMessage if delayq did not send it."""
    given = _texts(message.properties)
    own = {name: value for name, value in given.items() if not name.startswith((_ROCKETMQ, "__"))}
    try:
        own.update(dict.fromkeys(_names.decode(given.get(f"{_ROCKETMQ}empty", "[]")), ""))
    except msgspec.MsgspecError:
        raise InvalidMessage(f"{_ROCKETMQ}empty", "is no list of names: delayq did not send this message") from None
    group = message.message_group or ""
    return Received(
        id=_need(given, f"{_ROCKETMQ}id"),
        topic=given.get(f"{_ROCKETMQ}topic", message.topic),
        due=_number(given, f"{_ROCKETMQ}due"),
        attempt=_number(given, f"{_ROCKETMQ}attempt", 1),
        tags=message.tag or "",
        keys=tuple(message.keys or ()),
        ordering_key="" if group == message.message_id else group,  # a message without a key is a group by itself
        properties=own,
        body=message.body,
    )


def _texts(given: Headers, but: str = "") -> dict[str, str]:
    pairs = given.items() if isinstance(given, Mapping) else given
    texts = ((_text(name), value) for name, value in pairs)
    return {name: _text(value) for name, value in texts if value is not None and name != but}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _need(found: Mapping[str, str], name: str) -> str:
    if not (value := found.get(name, "")):
        raise InvalidMessage(name, "is missing: delayq did not send this message")
    return value


def _number(found: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    value = found.get(name, "")
    if not value and otherwise is not None:
        return otherwise
    if not value.isascii() or not value.isdigit() or len(value) > _DIGITS or int(value) > LATEST:
        raise InvalidMessage(name, f"is {value!r:.100}, not a number: delayq did not send this message")
    return int(value)
