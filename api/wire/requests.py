"""What comes in, and how it becomes a `Message`. Limits that are written here are for the documentation only;

`Message.validate` is what holds, so that the HTTP API and the Python client refuse the same things.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from delayq import InvalidMessage, Message, parse_duration, parse_instant

__all__ = ["KEY", "BatchIn", "CancelIn", "IdsIn", "MessageIn", "PartsIn", "PatchIn", "due_of", "message_of"]

_ID: Final = {"pattern": "^[A-Za-z0-9._:-]{1,128}$"}
_TEXT: Final = {"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]*$", "maxLength": 255}
KEY: Final = {"minLength": 1, "maxLength": 255, "pattern": "^[^\\s\\u0000-\\u001f\\u007f-\\u009f]+$"}
_HORIZON: Final = 10 * 365 * 86_400_000

Duration = Annotated[
    int | str | None,
    Meta(
        description="ms, or text such as '30m', '1h30m' or 'PT30M'",
        examples=["30m", 1_800_000],
        extra_json_schema={"minimum": 0, "maximum": _HORIZON},
    ),
]
Date = Annotated[
    int | str | None,
    Meta(
        description="RFC 3339 with its zone, or Unix ms; the past means now",
        examples=["2027-01-31T08:00:00Z", 1_801_382_400_000],
        extra_json_schema={"minimum": 0},
    ),
]
Level = Annotated[
    int | None,
    Meta(
        description="one of RocketMQ's levels, 1 (1 s) to 18 (2 h); above the last is the last",
        extra_json_schema={"minimum": 1, "maximum": 2**31},
    ),
]


class MessageIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A message. Exactly one of delayTime, expectDate and delayLevel says when; null means not given."""

    topic: Annotated[
        str,
        Meta(
            description="where it goes; not beginning with 'delayq:'",
            examples=["orders.unpaid"],
            extra_json_schema={"pattern": "^(?!delayq:)[A-Za-z0-9._:-]{1,255}$"},
        ),
    ]
    body: Annotated[Raw, Meta(description="a string, or any JSON value", examples=["order 42"])] | UnsetType = UNSET
    body_base64: Annotated[str | None, Meta(description="the body as bytes, in place of body")] = None
    delay_time: Duration = None
    expect_date: Date = None
    delay_level: Level = None
    id: Annotated[str | None, Meta(description="your own id; made here without", extra_json_schema=_ID)] = None
    tags: Annotated[str | None, Meta(description="RocketMQ's tag", extra_json_schema=_TEXT)] = None
    keys: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema=KEY)], ...] | None,
        Meta(
            description="business keys, to find and cancel by",
            extra_json_schema={"maxItems": 16, "uniqueItems": True},
        ),
    ] = None
    properties: Annotated[
        dict[str, str] | None, Meta(description="handed on with it", extra_json_schema={"maxProperties": 64})
    ] = None
    ordering_key: Annotated[
        str | None, Meta(description="messages of one key never overtake each other", extra_json_schema=_TEXT)
    ] = None
    max_attempts: Annotated[
        int | None,
        Meta(description="give up after as many", extra_json_schema={"minimum": 1, "maximum": 1_000}),
    ] = None
    expire_after: Annotated[
        Duration, Meta(description="ms (or text) after its due from which it is not forwarded any more")
    ] = None


class BatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages; each is taken or refused by itself."""

    messages: list[MessageIn]


class PartsIn(msgspec.Struct, forbid_unknown_fields=True):
    """A batch in which some message is malformed: each is then decoded by itself."""

    messages: list[Raw]


class PatchIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The new due: exactly one of the three; null means not given."""

    delay_time: Duration = None
    expect_date: Date = None
    delay_level: Level = None


class IdsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of messages."""

    ids: list[str]


class CancelIn(msgspec.Struct, forbid_unknown_fields=True):
    """What to cancel: ids, or business keys; one of the two; null means not given."""

    ids: list[str] | None = None
    keys: list[str] | None = None


_text = msgspec.json.Decoder(str)


def message_of(given: MessageIn) -> Message:
    """The message; raises InvalidMessage for what has no meaning. `Message.validate` sees to the rest."""
    body: Any = given.body
    if body is UNSET:
        body = _bytes(given.body_base64) if given.body_base64 is not None else ""
    elif given.body_base64 is not None:
        raise InvalidMessage("bodyBase64", "give body or bodyBase64, not both")
    elif memoryview(body)[0] == 0x22:
        body = _text.decode(body)
    expire_after = given.expire_after
    return Message(
        topic=given.topic,
        body=body,
        delay_time=given.delay_time if type(given.delay_time) is int else _duration("delayTime", given.delay_time),
        expect_date=None if given.expect_date is None else _instant(given.expect_date),
        delay_level=given.delay_level,
        tags=given.tags or "",
        keys=given.keys or (),
        properties=given.properties or {},
        id=given.id,
        ordering_key=given.ordering_key or "",
        max_attempts=given.max_attempts,
        expire_after=None if expire_after is None else _duration("expireAfter", expire_after),
    )


def due_of(given: PatchIn) -> dict[str, int | None]:
    """The new due as the client's `reschedule` takes it; raises InvalidMessage."""
    return {
        "delay_time": _duration("delayTime", given.delay_time),
        "expect_date": None if given.expect_date is None else _instant(given.expect_date),
        "delay_level": given.delay_level,
    }


def _duration(field: str, value: int | str | None) -> int | None:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def _instant(value: int | str) -> int:
    if isinstance(value, int):
        return value
    try:
        return parse_instant(value)
    except ValueError as error:
        raise InvalidMessage("expectDate", str(error)) from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidMessage("bodyBase64", "is not base 64 (RFC 4648, with its padding)") from None
