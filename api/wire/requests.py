"""Requests: JSON is decoded into a type, or refused with the place of the mistake, and becomes a `Message`.

The limits in this file are for the documentation only. `Message.validate` enforces them, so that the HTTP API and the
Python client refuse the same messages.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from api.wire.problems import Problem
from delayq import InvalidMessage, Message, Policy, parse_duration, parse_instant
from delayq.base import json_text
from delayq.base.times import EARLIEST, check_unix_ms, restore_plus
from delayq.domain.message import check_call
from delayq.domain.policies import LEAST_RATE, LONGEST_REASON, MOST_RECEIPTS, MOST_STEPS

_ID: Final = {"pattern": "^(?!\\.{1,2}$)[A-Za-z0-9._:-]{1,128}$"}
_TEXT: Final = {"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]*$", "maxLength": 255}
KEY: Final = {"minLength": 1, "maxLength": 255, "pattern": "^[^\\s\\u0000-\\u001f\\u007f-\\u009f]+$"}
#: The default and the maximum `limit` of a page.
LIMIT: Final = 100
MOST: Final = 1_000
_HORIZON: Final = 10 * 365 * 86_400_000

Duration = Annotated[
    int | str | None,
    Meta(
        description="ms, or text such as '30m', '1h30m' or 'PT30M'.",
        examples=["30m", 1_800_000],
        extra_json_schema={"minimum": 0, "maximum": _HORIZON},
    ),
]
Date = Annotated[
    int | str | None,
    Meta(
        description="RFC 3339 with its zone, or Unix ms; a past time means now, and a time before 2001 is refused.",
        examples=["2027-01-31T08:00:00Z", 1_801_382_400_000],
        extra_json_schema={"minimum": EARLIEST, "format": "date-time"},
    ),
]
Level = Annotated[
    int | None,
    Meta(
        description="One of RocketMQ's levels, 1 (1 s) to 18 (2 h); a higher level means the highest one.",
        extra_json_schema={"minimum": 1, "maximum": 2**31},
    ),
]


class MessageIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """A message. Exactly one of delayTime, expectDate and delayLevel sets its due time; null means not given."""

    topic: Annotated[
        str,
        Meta(
            description="The topic; it must not begin with 'delayq:'.",
            examples=["orders.unpaid"],
            extra_json_schema={"pattern": "^(?!delayq:)[A-Za-z0-9._:-]{1,255}$"},
        ),
    ]
    body: Annotated[Raw, Meta(description="A string, or any JSON value.", examples=["order 42"])] | UnsetType = UNSET
    body_base64: Annotated[str | None, Meta(description="The body as bytes, instead of body.")] = None
    delay_time: Duration = None
    expect_date: Date = None
    delay_level: Level = None
    id: Annotated[
        str | None,
        Meta(
            description="Your own id; default: an id that the server generates. An ending of a dot and four digits of 0-9 a-f "
            "(invoice-17.2026) chooses the queue, so give all ids of a series another one.",
            extra_json_schema=_ID,
        ),
    ] = None
    tags: Annotated[str | None, Meta(description="RocketMQ's tag", extra_json_schema=_TEXT)] = None
    keys: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema=KEY)], ...] | None,
        Meta(
            description="Business keys, to find and cancel the message.",
            extra_json_schema={"maxItems": 16, "uniqueItems": True},
        ),
    ] = None
    properties: Annotated[
        dict[str, str] | None,
        Meta(description="Properties that are delivered with the message.", extra_json_schema={"maxProperties": 64}),
    ] = None
    ordering_key: Annotated[
        str | None,
        Meta(description="Messages with the same ordering key never overtake each other.", extra_json_schema=_TEXT),
    ] = None
    max_attempts: Annotated[
        int | None,
        Meta(
            description="The attempts after which the message becomes a dead letter.",
            extra_json_schema={"minimum": 1, "maximum": 1_000},
        ),
    ] = None
    expire_after: Annotated[
        Duration, Meta(description="The time after the due time when the message expires: ms, or text.")
    ] = None
    window: Annotated[
        int | str | None,
        Meta(
            description="Spreads due times over this time, by the id alone: ms (or text), at most a day.",
            examples=["10m"],
            extra_json_schema={"minimum": 1, "maximum": 86_400_000},
        ),
    ] = None
    again: Annotated[bool | None, Meta(description="Schedule the message even if its id was certainly cancelled.")] = (
        None
    )


class BatchIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages; each of them is accepted or refused separately."""

    messages: list[MessageIn]


class PartsIn(msgspec.Struct, forbid_unknown_fields=True):
    """A batch with a malformed message: each message is then decoded separately."""

    messages: list[Raw]


Call = Annotated[
    str | None,
    Meta(
        description="A name that you make for this call. Repeated after a lost answer, it gets the first answer.",
        extra_json_schema={"pattern": "^[A-Za-z0-9_-]{1,64}$"},
    ),
]


class PatchIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The new due time, as exactly one of the three fields; null means not given."""

    delay_time: Duration = None
    expect_date: Date = None
    delay_level: Level = None
    reason: str | None = None
    call: Call = None


class IdsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of messages, and the reason for the audit."""

    ids: list[str]
    reason: str | None = None


class RedriveIn(IdsIn, forbid_unknown_fields=True):
    """Ids of dead letters, and the reason for the audit."""

    call: Call = None


class CancelIn(msgspec.Struct, forbid_unknown_fields=True):
    """The messages to cancel, by exactly one of ids and business keys. An empty list counts as not given."""

    ids: list[str] | None = None
    keys: list[str] | None = None
    reason: str | None = None


Match = Annotated[
    str,
    Meta(
        description="A pattern of topics, with * and ?.",
        examples=["orders.*"],
        extra_json_schema={"pattern": "^[A-Za-z0-9._:*?-]{1,255}$"},
    ),
]


class PauseIn(msgspec.Struct, forbid_unknown_fields=True):
    """The topics to pause, the reason, and the end: RFC 3339 with its zone, or Unix ms. Omitted fields keep their
    values.
    """

    match: Match
    reason: Annotated[str | None, Meta(extra_json_schema={"maxLength": LONGEST_REASON})] | UnsetType = UNSET
    until: (
        Annotated[
            int | str | None,
            Meta(examples=["2027-01-31T08:00:00Z", 1_801_382_400_000], extra_json_schema={"format": "date-time"}),
        ]
        | UnsetType
    ) = UNSET


class ResumeIn(msgspec.Struct, forbid_unknown_fields=True):
    """The pattern of the pause to end, the maximum messages per second for held messages, and the reason."""

    match: Match
    rate: Annotated[float | None, Meta(extra_json_schema={"minimum": 1})] = None
    reason: Annotated[str | None, Meta(extra_json_schema={"maxLength": LONGEST_REASON})] = None


class PolicyIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A policy for topics; null means not given. Durations are ms, or text such as '30m'."""

    match: Match
    order: Annotated[
        int,
        Meta(
            description="If several policies match a topic, the one with the lowest order applies.",
            extra_json_schema={"minimum": 0},
        ),
    ] = 100
    per: Annotated[
        Literal["topic", "policy"], Meta(description="Whether each topic has the rate, or all topics share it.")
    ] = "topic"
    rate: Annotated[float | None, Meta(description="messages a second", extra_json_schema={"minimum": LEAST_RATE})] = (
        None
    )
    burst: Annotated[
        int | None,
        Meta(
            description="Maximum messages at once; default: the messages of a second. At least those of 0.15 s.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    max_in_flight: Annotated[
        int | None,
        Meta(
            description="Concurrency limit: sends at a time. Not for topics of streams in the same Redis.",
            extra_json_schema={"minimum": 1, "maximum": 1_000_000},
        ),
    ] = None
    window: Annotated[Duration, Meta(description="Due times are spread over this time, at most a day.")] = None
    max_attempts: Annotated[
        int | None,
        Meta(
            description="The attempts after which a message becomes a dead letter.",
            extra_json_schema={"minimum": 1, "maximum": 1_000},
        ),
    ] = None
    backoff: Annotated[
        list[int | str] | None,
        Meta(
            description="The back-off after the first failure of a message, the second, and so on; the last one repeats. "
            "A failure is an attempt that failed, or a hand-back by a consumer.",
            examples=[["10s", "1m", "10m"]],
            extra_json_schema={"maxItems": MOST_STEPS},
        ),
    ] = None
    max_hand_backs: Annotated[
        int | None,
        Meta(
            description="After more hand-backs by consumers a message becomes a dead letter; default: 16.",
            extra_json_schema={"minimum": 0, "maximum": MOST_RECEIPTS},
        ),
    ] = None
    max_deliveries: Annotated[
        int | None,
        Meta(
            description="After this many leases of a consumer group that ended, a message becomes a dead letter; "
            "default: 16.",
            extra_json_schema={"minimum": 1, "maximum": MOST_RECEIPTS},
        ),
    ] = None
    expire_after: Annotated[Duration, Meta(description="The time after the due time when a message expires.")] = None
    pending: Annotated[
        int | None, Meta(description="Maximum number of waiting messages.", extra_json_schema={"minimum": 1})
    ] = None
    index: Annotated[
        list[Literal["topic", "tags"]] | None, Meta(description="Indexes for exact counts and fast searches.")
    ] = None
    redact: Annotated[
        list[str] | None, Meta(description="JSON paths of body parts that are hidden.", examples=[["$.card"]])
    ] = None
    min_replicas: Annotated[
        int | None,
        Meta(
            description="The replicas that must have a message before it is accepted.",
            extra_json_schema={"minimum": 0, "maximum": 100},
        ),
    ] = None
    fsync: Annotated[
        Literal["everysec", "always"] | None,
        Meta(description="With `always`, a message is accepted once it is on disk."),
    ] = None
    retention_age: Annotated[
        Duration,
        Meta(description="Streams: entries older than this are trimmed once every group has acknowledged them."),
    ] = None
    retention_length: Annotated[
        int | None,
        Meta(
            description="Streams: the oldest entries above this number are trimmed once every group has acknowledged them.",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    retention_force: Annotated[
        bool, Meta(description="Trim entries that groups have not acknowledged, too, and streams without groups.")
    ] = False


class DeliverIn(msgspec.Struct, forbid_unknown_fields=True):
    """The options of the delivery."""

    force: Annotated[bool, Meta(description="Ignore pauses and limits; needs the scope 'admin'.")] = False
    reason: str | None = None
    call: Call = None


class DeliverManyIn(CancelIn, forbid_unknown_fields=True):
    """The messages to deliver, by exactly one of ids and business keys. An empty list counts as not given."""

    force: Annotated[bool, Meta(description="Ignore pauses and limits; needs the scope 'admin'.")] = False
    call: Call = None


class AdvanceIn(msgspec.Struct, forbid_unknown_fields=True):
    """The distance to move time: ms, or text such as '30m'."""

    time: Annotated[int | str, Meta(examples=["30m", 1_800_000], extra_json_schema={"minimum": 0, "maximum": _HORIZON})]


class SessionIn(msgspec.Struct, forbid_unknown_fields=True):
    """An API key, and the path under which the browser reaches this API."""

    key: str
    path: str


_text = msgspec.json.Decoder(str)
#: A number of a query with at least this many digits may be in seconds. A smaller one means any time.
SECONDS: Final = 9


def limit_of(text: str | None, otherwise: int = LIMIT) -> int:
    """Return the maximum size of a page, from a query's `limit`. Raises InvalidMessage."""
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST):
        raise InvalidMessage("limit", f"must be an integer from 1 to {MOST}")
    return int(text)


def duration_of(field: str, text: str) -> int:
    """Return ms of a query's parameter. Raises InvalidMessage."""
    try:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else parse_duration(text)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def instant_of(field: str, text: str | None) -> int | None:
    """Return Unix ms of a query's parameter. Raises InvalidMessage."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16:
        ms = int(text)
        try:
            if len(text) >= SECONDS:
                check_unix_ms(ms)
        except ValueError as error:
            raise InvalidMessage(field, str(error)) from None
        return ms
    try:
        return parse_instant(restore_plus(text))
    except ValueError as error:
        raise InvalidMessage(field, f"{error}; in a query, write + as %2B") from None


def body_of(given: Raw | UnsetType, base_64: str | None) -> Any:
    """Return the body of a message. Raises InvalidMessage if it is given twice."""
    if given is UNSET:
        return _bytes(base_64) if base_64 is not None else ""
    if base_64 is not None:
        raise InvalidMessage("bodyBase64", "give body or bodyBase64, not both")
    return _text.decode(given) if memoryview(given)[0] == 0x22 else given


def message_of(given: MessageIn) -> Message:
    """Return the message. Raises InvalidMessage for meaningless fields. `Message.validate` checks the others."""
    body = body_of(given.body, given.body_base64)
    expire_after = given.expire_after
    return Message(
        topic=given.topic,
        body=body,
        delay_time=given.delay_time if type(given.delay_time) is int else duration("delayTime", given.delay_time),
        expect_date=None if given.expect_date is None else instant("expectDate", given.expect_date),
        delay_level=given.delay_level,
        tags=given.tags or "",
        keys=given.keys or (),
        properties=given.properties or {},
        id=given.id,
        ordering_key=given.ordering_key or "",
        max_attempts=given.max_attempts,
        expire_after=None if expire_after is None else duration("expireAfter", expire_after),
        window=None if given.window is None else duration("window", given.window),
        again=bool(given.again),
    )


def due_of(given: PatchIn) -> dict[str, int | None]:
    """Return the new due time as the client's `reschedule` takes it. Raises InvalidMessage."""
    return {
        "delay_time": duration("delayTime", given.delay_time),
        "expect_date": None if given.expect_date is None else instant("expectDate", given.expect_date),
        "delay_level": given.delay_level,
    }


def call_of(given: PatchIn | DeliverIn | DeliverManyIn | RedriveIn) -> str:
    """Return the name of a call; '' without one. Raises InvalidMessage."""
    return "" if given.call is None else check_call(given.call)


def policy_of(name: str, given: PolicyIn) -> Policy:
    """Return the policy. Raises InvalidMessage for a duration that cannot be read. `Policy.check` checks the others."""
    fields: dict[str, Any] = {field: getattr(given, field) for field in given.__struct_fields__}
    lists = {field: tuple(fields[field] or ()) for field in ("backoff", "index", "redact")}
    return Policy(name=name, **fields | lists)


def duration(field: str, value: int | str | None) -> int | None:
    """Return ms of a duration. Raises InvalidMessage."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def instant(field: str, value: int | str) -> int:
    """Return Unix ms of a date. Raises InvalidMessage."""
    if isinstance(value, int):
        return value
    try:
        return parse_instant(value)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidMessage("bodyBase64", "must be base 64 (RFC 4648, with padding)") from None


T = TypeVar("T")

#: The remedy by the last name in the path of a field.
MEND: Final = {
    "delayTime": "use ms as an integer, or a duration such as '30m' or 'PT30M'",
    "expireAfter": "use ms as an integer, or a duration such as '30m' or 'PT30M'",
    "backoff": "use an array of ms, or of durations such as '10s'",
    "window": "use ms as an integer, or a duration such as '10m' or 'PT10M'",
    "expectDate": "use a date such as '2027-01-31T08:00:00Z', or Unix ms as an integer",
    "delayLevel": "use an integer from 1",
    "maxAttempts": "use an integer from 1",
    "keys": "use an array of strings",
    "properties": "use an object whose values are strings",
}
_AT = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_NAMED = re.compile(r"(unknown|required) field `(.*)`", re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
# A field's name is searched for in this many bytes of a request, because the search blocks the event loop.
_FAR: Final = 65_536


_parts = msgspec.json.Decoder(PartsIn)


def decode_each(raw: bytes, read: Callable[[bytes], Sequence[T]]) -> Sequence[T | msgspec.Raw]:
    """Return the messages of a batch as `read` decodes them.

    If one of them is malformed, all are returned as parts of the text, so that each gets a result of its own.
    """
    try:
        return read(raw)
    except Problem:
        return decode(_parts, raw).messages


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """Decode the JSON text. Raises a Problem with the place and the remedy.

    A `Raw` is a part of a text that was decoded before.
    """
    try:
        if type(raw) is bytes and not raw.isascii():
            raw.decode()  # skipped parts, such as a body, must be text too
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        _wrong_type(str(error))
    except UnicodeDecodeError as error:
        _malformed(bytes(raw), error.start, f"byte {error.start} is not UTF-8")
    except msgspec.DecodeError as error:
        _not_json(bytes(raw), str(error))
    except RecursionError:
        raise Problem("invalid", "The JSON is nested too deeply. A few hundred levels are accepted.") from None


def _wrong_type(message: str) -> NoReturn:
    match = _AT.match(message)
    assert match is not None
    reason, path = match.group(1), (match.group(2) or "").lstrip(".")
    if (named := _NAMED.search(reason)) is not None:
        field = f"{path}.{named.group(2)}".lstrip(".")
        _refuse(f"{field}: {'is missing' if named.group(1) == 'required' else 'unknown field'}", field)
    reason = reason[:1].lower() + reason[1:].replace("`", "")
    mend = MEND.get(re.sub(r"\[.*?\]$", "", path).rpartition(".")[2])
    _refuse(": ".join(filter(None, (path, reason))) + (f"; {mend}" if mend else ""), path)


def _not_json(raw: bytes, message: str) -> NoReturn:
    if not raw:
        raise Problem("invalid", "The body is empty. Send a JSON object.")
    reason, at = json_text.explain(raw, message)
    _malformed(raw, at, reason)


def _malformed(raw: bytes, offset: int, reason: str) -> NoReturn:
    field = locate(raw, offset)
    nan = raw[offset : offset + 1] in (b"N", b"I")
    hint = "; NaN and Infinity are not JSON" if nan else ""
    where = f" (in {field})" if field else ""
    _refuse(f"The JSON is malformed: {reason}{where}{hint}", field)


def _refuse(detail: str, field: str) -> NoReturn:
    raise Problem("invalid", f"{detail}.", field=field[:200] or UNSET)


def locate(raw: bytes, offset: int) -> str:
    """Return the path ('messages[3].delayTime') of the value at `offset` of a JSON text; '' if it is unknown."""
    if offset > _FAR:
        return ""
    stack: list[list[bytes | int | None]] = []  # the member's name of each open object, the index of each array
    for match in _TOKEN.finditer(raw, 0, offset):
        token = match.group()
        if token == b"{":
            stack.append([None])
        elif token == b"[":
            stack.append([0])
        elif token in b"}]":
            del stack[-1:]
        elif not stack:
            continue
        elif token == b",":
            index = stack[-1][0]
            stack[-1][0] = index + 1 if isinstance(index, int) else None
        elif stack[-1][0] is None:
            stack[-1][0] = token.strip(b'"')
    path = ""
    for (place,) in stack[:8]:
        if isinstance(place, int):
            path += f"[{place}]"
        elif place is not None:
            path += "." + place.decode(errors="replace")
    return path.lstrip(".")
