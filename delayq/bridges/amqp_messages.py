"""Convert a message of RabbitMQ with an `x-delay` header to a message of delayq."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil, inf
from typing import Any, Final

from delayq.base.errors import InvalidMessage
from delayq.base.times import EARLIEST
from delayq.domain.message import Limits, Message, check_id
from delayq.store.keys import new_id
from delayq.targets.rabbitmq.passthrough import CARRIED, OWN_PREFIX
from delayq.targets.rabbitmq.received import LAST_SECOND

DELAY: Final = "x-delay"
STAMP: Final = "timestamp_in_ms"
TAGS, KEYS, ORDERING_KEY = f"{OWN_PREFIX}tags", f"{OWN_PREFIX}keys", f"{OWN_PREFIX}ordering-key"
#: The property with an id that delayq does not accept.
MESSAGE_ID: Final = "amqp-message-id"
#: ms; no message may be delayed longer.
LONGEST: Final = 2**53
MOST_TOLD: Final = 1_000

_NUMBER = re.compile(r"[+-]?\d{1,16}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAMES = re.compile(r"\{([^{}]*)\}")


class Reader:
    """Reads messages. `tell` is called once for each omitted header."""

    def __init__(self, topic: str, limits: Limits, tell: Callable[[str], None], *, by_timestamp: bool = False) -> None:
        unknown = set(_NAMES.findall(topic)) - {"routing_key", "exchange"}
        if unknown:
            raise ValueError(f"a topic is made of {{routing_key}} and {{exchange}}, not of {{{min(unknown)}}}")
        self._topic = topic
        self._limits = limits
        self._tell = tell
        self._by_timestamp = by_timestamp
        self._told: set[str] = set()

    def read(self, method: Any, properties: Any, body: bytes, now: int) -> Message:
        """Return the message as of its arrival at `now` (Unix ms). Raises InvalidMessage if it can never be scheduled."""
        if (refusal := getattr(properties, "refusal", None)) is not None:
            raise refusal
        headers: Mapping[str, Any] = properties.headers or {}
        id = _id(properties.message_id)
        return Message(
            topic=self._topic_of(method),
            body=body,
            id=id,
            delay_time=max(0, _delay(headers.get(DELAY, 0)) - self._age(properties, headers, now)),
            tags=_text(headers.get(TAGS), TAGS),
            keys=_keys(headers.get(KEYS)),
            ordering_key=_text(headers.get(ORDERING_KEY), ORDERING_KEY),
            properties=self._properties(properties, headers, id),
        )

    def _topic_of(self, method: Any) -> str:
        given = {
            "exchange": _utf8(method.exchange, "topic", "the exchange"),
            "routing_key": _utf8(method.routing_key, "topic", "the routing key"),
        }
        return _NAMES.sub(lambda name: given[name[1]], self._topic)

    def _age(self, properties: Any, headers: Mapping[str, Any], now: int) -> int:
        """Return the ms since it was published, rounded down; 0 if the delay does not count from then."""
        if not self._by_timestamp:
            return 0
        if (stamp := headers.get(STAMP)) is not None:  # set by the broker, if it is configured
            if type(stamp) is not int or not EARLIEST <= stamp <= LAST_SECOND * 1000:
                raise InvalidMessage(STAMP, f"must be Unix ms, from 2001 to 9999, not {stamp!r}"[:200])
            return max(0, now - stamp)
        if (seconds := properties.timestamp) is None:
            return 0
        if not EARLIEST <= seconds * 1000 <= LAST_SECOND * 1000:
            raise InvalidMessage("timestamp", f"must be in seconds since 1970, from 2001 to 9999, not {seconds}")
        return max(0, now - (int(seconds) + 1) * 1000)  # full seconds, cut off

    def _properties(self, properties: Any, headers: Mapping[str, Any], id: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for given, value in headers.items():
            name = _utf8(given, "headers", "the name of a header")
            if name == DELAY or name.startswith(OWN_PREFIX):
                continue
            text = _value(value)
            if text is None:
                self._leave_out(name, "it is neither text nor a number")
            elif _is_wrong(name, text, self._limits):
                self._leave_out(name, "its name or its value is too long, or has control characters")
            else:
                found[name] = text
        for name, field in CARRIED.items():
            if (value := getattr(properties, field)) is not None:
                self._carry(found, name, str(value) if isinstance(value, int) else _utf8(value, name, "it"))
        if properties.message_id and properties.message_id != id:
            self._carry(found, MESSAGE_ID, properties.message_id)
        return found

    def _carry(self, found: dict[str, str], name: str, value: str) -> None:
        """Add a property of AMQP, which must not replace a header of that name, nor be replaced by it."""
        if _is_wrong(name, value, self._limits):
            raise InvalidMessage(name, "it is too long, or has control characters")
        if found.setdefault(name, value) != value:
            raise InvalidMessage("headers", f"{name!r} already has another value of the message")

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(name)
            self._tell(f"the header {name!r} is omitted where {why}")


def _utf8(given: Any, field: str, what: str) -> str:
    """Return the text. AMQP's short strings may be any bytes; pika returns them as bytes if they are not UTF-8."""
    if not isinstance(given, str):
        raise InvalidMessage(field, f"{what} is not UTF-8: {given!r}"[:200])
    return given


def _id(given: Any) -> str:
    """Return the id of the message. Without one, each delivery of it gets another id."""
    if not given:
        return new_id()
    id = _utf8(given, "message-id", "it")
    try:
        return check_id(id)
    except InvalidMessage:
        return f"amqp-{hashlib.sha256(id.encode(errors='surrogateescape')).hexdigest()[:40]}"


def _delay(value: Any) -> int:
    """Return ms. A part of a ms is rounded up, so that no message is early."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return int(value)
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if is_number and value == value and abs(value) < inf:
        delay: int = ceil(min(max(value, -LONGEST), LONGEST))
        return delay
    raise InvalidMessage(DELAY, f"must be a number of ms, not {value!r}"[:200])


def _value(value: Any) -> str | None:
    """Return the value as text with the same meaning; None if it has none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, str | int | float | Decimal):
        return str(value)
    return None


def _is_wrong(name: str, text: str, limits: Limits) -> bool:
    return (
        not name
        or _CONTROL.search(name) is not None
        or _CONTROL.search(text) is not None
        or len(name.encode()) > limits.property_name
        or len(text.encode()) > limits.property_value
    )


def _text(value: Any, header: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidMessage(header, "is text")
    return value


def _keys(value: Any) -> tuple[str, ...]:
    """Return business keys: a list of texts, or one text with spaces between."""
    if isinstance(value, list):
        return tuple(_text(one, KEYS) for one in value)
    return tuple(_text(value, KEYS).split())
