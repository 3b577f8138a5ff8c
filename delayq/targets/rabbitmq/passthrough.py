"""A message in AMQP: its exchange and routing key, its headers, and the properties that pass through delayq.

The bridge takes these in, the target gives them out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from delayq.domain.message import HAND_BACKS_PROPERTY, ORIGIN_PROPERTY, REASONS_PROPERTY

#: The prefix of headers that delayq writes and reads.
OWN_PREFIX: Final = "delayq-"
#: Names of delayq's properties to those of AMQP.
CARRIED: Final[Mapping[str, str]] = {
    "amqp-app-id": "app_id",
    "amqp-content-encoding": "content_encoding",
    "amqp-content-type": "content_type",
    "amqp-correlation-id": "correlation_id",
    "amqp-expiration": "expiration",
    "amqp-priority": "priority",
    "amqp-reply-to": "reply_to",
    "amqp-type": "type",
}
#: Bytes of a short string of AMQP: exchanges, routing keys, names of headers.
SHORT: Final = 255
#: Properties of messages that consumers handed back. They keep their names, so that consumers find them.
HANDED_BACK: Final = frozenset({HAND_BACKS_PROPERTY, ORIGIN_PROPERTY, REASONS_PROPERTY})
#: Headers that the broker interprets.
BROKERS: Final = frozenset({"CC", "BCC"})


def way_of(exchange: str, routing_key: str, topic: str) -> tuple[str, str]:
    """Return the exchange and the routing key of a topic's messages. Raises ValueError if AMQP does not allow them."""
    exchange, routing_key = exchange.replace("{topic}", topic), routing_key.replace("{topic}", topic)
    if len(exchange.encode()) > SHORT or len(routing_key.encode()) > SHORT:
        raise ValueError(f"its exchange or routing key is longer than {SHORT} bytes")
    return exchange, routing_key


def carried(properties: Mapping[str, str], prefix: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers and the AMQP properties of a message's properties. Raises ValueError if AMQP does not allow
    them.
    """
    headers: dict[str, str] = {}
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name in CARRIED:
            given[CARRIED[name]] = carried_out(name, value)
            continue
        if name in HANDED_BACK:
            headers[name] = value
            continue
        header = prefix + name
        if header in BROKERS or header.startswith(OWN_PREFIX) or len(header.encode()) > SHORT:
            raise ValueError(f"the property {name!r} cannot be a header; give the route another propertyPrefix")
        headers[header] = value
    return headers, given


def carried_out(name: str, value: str) -> Any:
    """Return the value of an AMQP property. Raises ValueError for an invalid one."""
    if name in ("amqp-priority", "amqp-expiration"):
        if not value.isascii() or not value.isdigit() or (name == "amqp-priority" and int(value) > SHORT):
            raise ValueError(f"the property {name!r} must be a number, not {value!r}"[:200])
        return int(value) if name == "amqp-priority" else value
    if len(value.encode()) > SHORT:
        raise ValueError(f"the property {name!r} is longer than {SHORT} bytes")
    return value
