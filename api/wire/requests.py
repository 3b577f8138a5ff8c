"""What comes in: JSON decoded into a type, or refused with the place where it is wrong; and how it becomes a `Message`.

Limits that are written here are for the documentation only. `Message.validate` is what holds, so that the HTTP API and the
Python client refuse the same things.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from api.wire.problems import Problem
from delayq import InvalidMessage, Message, Policy, json_text, parse_duration, parse_instant
from delayq.policies import LEAST_RATE, LONGEST_REASON, MOST_STEPS
from delayq.times import EARLIEST, check_unix_ms, restore_plus

__all__ = [
    "KEY",
    "LIMIT",
    "MOST",
    "AdvanceIn",
    "BatchIn",
    "CancelIn",
    "DeliverIn",
    "DeliverManyIn",
    "IdsIn",
    "MessageIn",
    "PartsIn",
    "PatchIn",
    "SessionIn",
    "decode",
    "due_of",
    "duration_of",
    "instant_of",
    "limit_of",
    "locate",
    "message_of",
]

_ID: Final = {"pattern": "^(?!\\.{1,2}$)[A-Za-z0-9._:-]{1,128}$"}
_TEXT: Final = {"pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029]*$", "maxLength": 255}
KEY: Final = {"minLength": 1, "maxLength": 255, "pattern": "^[^\\s\\u0000-\\u001f\\u007f-\\u009f]+$"}
#: What a page of a list has without `limit`, and with the highest one.
LIMIT: Final = 100
MOST: Final = 1_000
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
        description="RFC 3339 with its zone, or Unix ms; the past means now, and a time before 2001 is refused",
        examples=["2027-01-31T08:00:00Z", 1_801_382_400_000],
        extra_json_schema={"minimum": EARLIEST, "format": "date-time"},
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
        Duration, Meta(description="ms (or text) after its due from which it is not delivered any more")
    ] = None
    window: Annotated[
        int | str | None,
        Meta(
            description="ms (or text), at most a day: it is due up to so much later, by its id alone",
            examples=["10m"],
            extra_json_schema={"minimum": 1, "maximum": 86_400_000},
        ),
    ] = None
    again: Annotated[
        bool | None, Meta(description="schedule it even if its id was cancelled before it could be delivered")
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
    reason: str | None = None


class IdsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of messages; and why, for the audit."""

    ids: list[str]
    reason: str | None = None


class CancelIn(msgspec.Struct, forbid_unknown_fields=True):
    """The messages to cancel, by exactly one of ids and business keys. An empty list counts as not given."""

    ids: list[str] | None = None
    keys: list[str] | None = None
    reason: str | None = None


Match = Annotated[
    str,
    Meta(
        description="a pattern of topics, with * and ?",
        examples=["orders.*"],
        extra_json_schema={"pattern": "^[A-Za-z0-9._:*?-]{1,255}$"},
    ),
]


class PauseIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which topics to pause, why, and until when: RFC 3339 with its zone, or Unix ms. What is left out stays as it is."""

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
    """Which pause to end, by its very pattern, at how many messages a second at most what it held goes out, and why."""

    match: Match
    rate: Annotated[float | None, Meta(extra_json_schema={"minimum": 1})] = None
    reason: Annotated[str | None, Meta(extra_json_schema={"maxLength": LONGEST_REASON})] = None


class PolicyIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What holds for topics; null means not given. Durations are ms, or text such as '30m'."""

    match: Match
    order: Annotated[
        int, Meta(description="of several policies the first counts", extra_json_schema={"minimum": 0})
    ] = 100
    per: Annotated[
        Literal["topic", "policy"], Meta(description="whether each topic has the rate for itself, or all together")
    ] = "topic"
    rate: Annotated[float | None, Meta(description="messages a second", extra_json_schema={"minimum": LEAST_RATE})] = (
        None
    )
    burst: Annotated[
        int | None,
        Meta(
            description="how many at once; those of a second without, of 0.15 s at least",
            extra_json_schema={"minimum": 1},
        ),
    ] = None
    max_in_flight: Annotated[
        int | None,
        Meta(
            description="sent at a time; not for topics of streams in the same Redis",
            extra_json_schema={"minimum": 1, "maximum": 1_000_000},
        ),
    ] = None
    window: Annotated[Duration, Meta(description="over which dues are spread, at most a day")] = None
    max_attempts: Annotated[
        int | None, Meta(description="give up after as many", extra_json_schema={"minimum": 1, "maximum": 1_000})
    ] = None
    backoff: Annotated[
        list[int | str] | None,
        Meta(
            description="how long to wait before the second attempt, the third, …; then as long as the last",
            examples=[["10s", "1m", "10m"]],
            extra_json_schema={"maxItems": MOST_STEPS},
        ),
    ] = None
    expire_after: Annotated[
        Duration, Meta(description="after its due from which a message is not delivered any more")
    ] = None
    pending: Annotated[int | None, Meta(description="how many may wait at most", extra_json_schema={"minimum": 1})] = (
        None
    )
    index: Annotated[
        list[Literal["topic", "tags"]] | None, Meta(description="by which they are counted exactly and found at once")
    ] = None
    redact: Annotated[
        list[str] | None, Meta(description="JSON paths of bodies that are not shown", examples=[["$.card"]])
    ] = None
    min_replicas: Annotated[
        int | None,
        Meta(
            description="replicas that must have a message before it is accepted",
            extra_json_schema={"minimum": 0, "maximum": 100},
        ),
    ] = None
    fsync: Annotated[
        Literal["everysec", "always"] | None, Meta(description="always: accepted once it is on the disk")
    ] = None


class DeliverIn(msgspec.Struct, forbid_unknown_fields=True):
    """How to deliver it."""

    force: Annotated[bool, Meta(description="also if a pause or a limit holds it; takes 'admin'")] = False
    reason: str | None = None


class DeliverManyIn(CancelIn, forbid_unknown_fields=True):
    """The messages to deliver, by exactly one of ids and business keys. An empty list counts as not given."""

    force: Annotated[bool, Meta(description="also what a pause or a limit holds; takes 'admin'")] = False


class AdvanceIn(msgspec.Struct, forbid_unknown_fields=True):
    """How far to move time: ms, or text such as '30m'."""

    time: Annotated[int | str, Meta(examples=["30m", 1_800_000], extra_json_schema={"minimum": 0, "maximum": _HORIZON})]


class SessionIn(msgspec.Struct, forbid_unknown_fields=True):
    """A key, and the path under which the browser sees this API."""

    key: str
    path: str


_text = msgspec.json.Decoder(str)
#: A number of a query with at least so many digits may be in seconds. A smaller one means any time.
SECONDS: Final = 9


def limit_of(text: str | None, otherwise: int = LIMIT) -> int:
    """How much a page has at most, by a query's `limit`; raises InvalidMessage."""
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST):
        raise InvalidMessage("limit", f"is a whole number from 1 to {MOST}")
    return int(text)


def duration_of(field: str, text: str) -> int:
    """ms of a query's parameter; raises InvalidMessage."""
    try:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else parse_duration(text)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def instant_of(field: str, text: str | None) -> int | None:
    """Unix ms of a query's parameter; raises InvalidMessage."""
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
    """The new due as the client's `reschedule` takes it; raises InvalidMessage."""
    return {
        "delay_time": duration("delayTime", given.delay_time),
        "expect_date": None if given.expect_date is None else instant("expectDate", given.expect_date),
        "delay_level": given.delay_level,
    }


def policy_of(name: str, given: PolicyIn) -> Policy:
    """The policy that was given; raises InvalidMessage for a duration that cannot be read. `Policy.check` checks the rest."""
    fields: dict[str, Any] = {field: getattr(given, field) for field in given.__struct_fields__}
    lists = {field: tuple(fields[field] or ()) for field in ("backoff", "index", "redact")}
    return Policy(name=name, **fields | lists)


def duration(field: str, value: int | str | None) -> int | None:
    """ms of a duration; raises InvalidMessage."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except ValueError as error:
        raise InvalidMessage(field, str(error)) from None


def instant(field: str, value: int | str) -> int:
    """Unix ms of a date; raises InvalidMessage."""
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
        raise InvalidMessage("bodyBase64", "is not base 64 (RFC 4648, with its padding)") from None


T = TypeVar("T")

#: What to write instead, by the last name in the path of a field.
MEND: Final = {
    "delayTime": "write ms as a whole number, or a duration such as '30m' or 'PT30M'",
    "expireAfter": "write ms as a whole number, or a duration such as '30m' or 'PT30M'",
    "backoff": "write an array of ms, or of durations such as '10s'",
    "window": "write ms as a whole number, or a duration such as '10m' or 'PT10M'",
    "expectDate": "write a date such as '2027-01-31T08:00:00Z', or Unix ms as a whole number",
    "delayLevel": "write a whole number from 1",
    "maxAttempts": "write a whole number from 1",
    "keys": "write an array of strings",
    "properties": "write an object whose values are strings",
}
_AT = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_NAMED = re.compile(r"(unknown|required) field `(.*)`", re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_FAR: Final = 65_536  # how far into a request a field's name is looked for: it costs time on the event loop


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """The JSON text as the decoder's type; raises a Problem that says where and how to mend it.

    A `Raw` is a part of a text that was decoded before.
    """
    try:
        if type(raw) is bytes and not raw.isascii():
            raw.decode()  # what is skipped as it is (a body) has to be text, too
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        _wrong_type(str(error))
    except UnicodeDecodeError as error:
        _malformed(bytes(raw), error.start, f"byte {error.start} is not UTF-8")
    except msgspec.DecodeError as error:
        _not_json(bytes(raw), str(error))
    except RecursionError:
        raise Problem("invalid", "The JSON is nested too deeply; a few hundred levels are taken.") from None


def _wrong_type(message: str) -> NoReturn:
    match = _AT.match(message)
    assert match is not None
    reason, path = match.group(1), (match.group(2) or "").lstrip(".")
    if (named := _NAMED.search(reason)) is not None:
        field = f"{path}.{named.group(2)}".lstrip(".")
        _refuse(f"{field}: {'is missing' if named.group(1) == 'required' else 'there is no such field'}", field)
    reason = reason[:1].lower() + reason[1:].replace("`", "")
    mend = MEND.get(re.sub(r"\[.*?\]$", "", path).rpartition(".")[2])
    _refuse(": ".join(filter(None, (path, reason))) + (f"; {mend}" if mend else ""), path)


def _not_json(raw: bytes, message: str) -> NoReturn:
    if not raw:
        raise Problem("invalid", "The body is empty; send a JSON object.")
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
    """The path ('messages[3].delayTime') of what stands at `offset` of a JSON text; '' when that is not known."""
    if offset > _FAR:
        return ""
    stack: list[list[bytes | int | None]] = []  # of each open object its member's name, of each array an index
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
