"""Properties of AMQP messages that pass through delayq: the bridge takes them in, the target gives them out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CARRIED", "OWN_PREFIX", "carried_out"]

#: The headers that delayq writes and reads begin so.
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
SHORT: Final = 255


def carried_out(name: str, value: str) -> Any:
    """The value of an AMQP property; raises ValueError if it cannot have this one."""
    if name in ("amqp-priority", "amqp-expiration"):
        if not value.isascii() or not value.isdigit() or (name == "amqp-priority" and int(value) > SHORT):
            raise ValueError(f"the property {name!r} is a number, not {value!r}"[:200])
        return int(value) if name == "amqp-priority" else value
    if len(value.encode()) > SHORT:
        raise ValueError(f"the property {name!r} is longer than {SHORT} bytes")
    return value
