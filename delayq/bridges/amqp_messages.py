"""A message of RabbitMQ with an `x-delay` header, as a message of delayq."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from delayq.errors import InvalidMessage
from delayq.message import Limits, Message, check_id
from delayq.store.keys import new_id
from delayq.targets.rabbitmq.passthrough import CARRIED, OWN_PREFIX

__all__ = ["Reader"]

DELAY: Final = "x-delay"
TAGS, KEYS, ORDERING_KEY = f"{OWN_PREFIX}tags", f"{OWN_PREFIX}keys", f"{OWN_PREFIX}ordering-key"
MOST_TOLD: Final = 1_000

_NUMBER = re.compile(r"[+-]?\d{1,16}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NAMES = re.compile(r"\{([^{}]*)\}")


class Reader:
    """Reads messages; `tell` hears, once for each header, what is left out."""

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
        """The message, as it came at `now` (Unix ms); raises InvalidMessage if it can never be scheduled."""
        headers: Mapping[str, Any] = properties.headers or {}
        topic = self._topic.replace("{exchange}", method.exchange).replace("{routing_key}", method.routing_key)
        id = _id(properties.message_id)
        return Message(
            topic=topic,
            body=body,
            id=id,
            delay_time=max(0, _delay(headers.get(DELAY, 0)) - self._age(properties, headers, now)),
            tags=_text(headers.get(TAGS), TAGS),
            keys=_keys(headers.get(KEYS)),
            ordering_key=_text(headers.get(ORDERING_KEY), ORDERING_KEY),
            properties=self._properties(properties, headers, id),
        )

    def _age(self, properties: Any, headers: Mapping[str, Any], now: int) -> int:
        """How long ago it was published, ms, if that is to count; less rather than more."""
        if not self._by_timestamp:
            return 0
        published = headers.get("timestamp_in_ms")  # by the broker's own clock, where it is told to
        if type(published) is not int:
            if properties.timestamp is None:
                return 0
            published = (int(properties.timestamp) + 1) * 1000  # whole seconds, cut off
        return max(0, now - published)

    def _properties(self, properties: Any, headers: Mapping[str, Any], id: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in headers.items():
            if name == DELAY or name.startswith(OWN_PREFIX):
                continue
            text = _value(value)
            if text is None:
                self._leave_out(name, "it is no text and no number")
            elif _is_wrong(name, text, self._limits):
                self._leave_out(name, "its name or its value is too long, or has control characters")
            else:
                found[name] = text
        for name, field in CARRIED.items():
            value = getattr(properties, field)
            if value is not None and name not in found:
                found[name] = str(value)
        if properties.message_id and properties.message_id != id:
            found["amqp-message-id"] = properties.message_id
        return found

    def _leave_out(self, name: str, why: str) -> None:
        if name not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(name)
            self._tell(f"the header {name!r} is left out wherever {why}")


def _id(given: str | None) -> str:
    """The id of the message; without one there is none that another delivery of it would have, too."""
    if not given:
        return new_id()
    try:
        return check_id(given)
    except InvalidMessage:
        return f"amqp-{hashlib.sha256(given.encode(errors='surrogateescape')).hexdigest()[:40]}"


def _delay(value: Any) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return int(value)
    if not isinstance(value, bool) and isinstance(value, int | float | Decimal):
        try:
            return int(value)
        except (ValueError, OverflowError):  # infinite, or no number
            pass
    raise InvalidMessage(DELAY, f"is a number of ms, not {value!r}"[:200])


def _value(value: Any) -> str | None:
    """As text; None if it has no such form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float | Decimal) else None


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
    """Business keys: a list of texts, or one text with spaces between."""
    if isinstance(value, list):
        return tuple(_text(one, KEYS) for one in value)
    return tuple(_text(value, KEYS).split())
