"""The message that people schedule, and its limits.

The life of a message::

                    reschedule
                     ┌─────┐
                     ▼     │
    schedule ──▶ scheduled ┴──▶ due ──pull──▶ inFlight ───┬─ack───▶ delivered
                                                          ├─retry─▶ retrying ─────────▶ due
                                                          ├─park──▶ parked ──release──▶ inFlight
                                                          ├─park──▶ held ────release──▶ inFlight
                                                          └─bury──▶ dead ──┬─redrive──▶ due
                                                                           └─discard──▶ discarded

    cancel ──▶ cancelled, if no target can have the message: it is scheduled, or a pause holds it
           ──▶ removedInFlight, if a target may have it: any other state; a dead letter stays

A parked message waits for its target, its ordering key or a route. A held one is parked, too: its topic is paused or limited.

How a message ended is remembered for a window of time (15 minutes unless configured), then forgotten.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.base.times import EARLIEST, Duration, Instant, check_unix_ms, duration_ms, instant_ms

#: RocketMQ 4's `messageDelayLevel`, in ms. Level 1 is the first; a level above the last one means the last.
DELAY_LEVELS: Final[tuple[int, ...]] = (
    1_000, 5_000, 10_000, 30_000,
    60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip

#: The property with the trace in which a message was scheduled, as W3C writes it. It is not part of the content.
TRACEPARENT: Final = "traceparent"

#: The property with the backfill run that scheduled a message, so that the run can be undone.
RUN_PROPERTY: Final = "backfill"

#: The properties of a message that consumers handed back: how often, its first id, and the reasons. They are delivered.
HAND_BACKS_PROPERTY: Final = "delayq-hand-backs"
ORIGIN_PROPERTY: Final = "delayq-origin"
REASONS_PROPERTY: Final = "delayq-reasons"

#: The property that names the only group which receives a message after its dead letter was redriven.
GROUP_PROPERTY: Final = "delayq-group"

#: The properties that delayq adds to a message. They do not count for its bounds, so every delivered message can be handed back.
_ADDED: Final = frozenset({RUN_PROPERTY, HAND_BACKS_PROPERTY, ORIGIN_PROPERTY, REASONS_PROPERTY, GROUP_PROPERTY})

#: The most attempts of a message, a policy, a route or the setting.
MOST_ATTEMPTS: Final = 1_000
#: The largest count and the largest rate in a policy, a route or a key.
MOST: Final = 10**12
#: The largest integer that the scripts in Redis count exactly.
MOST_NUMBER: Final = 2**53

#: The maximum window over which a due time is spread, in ms: a day.
MAX_WINDOW: Final = 86_400_000

#: The namespace of an installation that nobody has given one.
NAMESPACE: Final = "delayq"

#: The prefix of business keys that delayq itself writes, to count by.
RESERVED: Final = "delayq:"

#: Due times are stored as 13 digits: up to the year 2286.
MAX_DUE: Final = 10**13 - 1

# URLs fold a segment of one or two dots, so no path could address such an id.
_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]{1,128}")
_CALL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOPIC = re.compile(r"(?!delayq:)[A-Za-z0-9._:-]{1,255}")
#: Keys of delayq without a hash tag have these parts behind the namespace (`delayq.store.keys`).
_OWN_NAMES: Final = re.compile(r"meta|nodes|advanced|rewritten|trimmed|(?:rate|slots|report):.*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

_good_topics: set[str] = set()

#: How the fields with several types are read.
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "expectDate": instant_ms, "delayTime": duration_ms, "expireAfter": duration_ms, "window": duration_ms
}  # fmt: skip


class State:
    """The states of a message, as the API writes them."""

    SCHEDULED: Final = "scheduled"
    DUE: Final = "due"
    IN_FLIGHT: Final = "inFlight"
    RETRYING: Final = "retrying"
    PARKED: Final = "parked"
    HELD: Final = "held"
    DEAD: Final = "dead"
    DELIVERED: Final = "delivered"
    CANCELLED: Final = "cancelled"
    REMOVED_IN_FLIGHT: Final = "removedInFlight"
    DISCARDED: Final = "discarded"


#: All states: the states of messages that have not ended, then how a message ended.
STATES: Final = (
    State.SCHEDULED, State.DUE, State.IN_FLIGHT, State.RETRYING, State.PARKED, State.HELD, State.DEAD,
    State.DELIVERED, State.CANCELLED, State.REMOVED_IN_FLIGHT, State.DISCARDED,
)  # fmt: skip
#: Results of calls that change messages: the change, or the state or the reason that prevented it.
RESULTS: Final = (*STATES, "notFound", "notDead", "noRoute", "corrupt")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of messages. Sizes in bytes of UTF-8, times in ms."""

    body: int = 1024 * 1024
    batch: int = 1_000
    keys: int = 16
    key: int = 255
    tags: int = 255
    ordering_key: int = 255
    properties: int = 64
    property_name: int = 255
    property_value: int = 8_192
    all_properties: int = 32_768
    max_attempts: int = MOST_ATTEMPTS
    horizon: int = 10 * 365 * 86_400_000
    delay_levels: tuple[int, ...] = DELAY_LEVELS
    namespace: str = NAMESPACE


def bounds_of(field: str, limits: Limits) -> tuple[int, int]:
    """Return the least and the largest value of a field that a message and its policy have."""
    if field == "maxAttempts":
        return 1, limits.max_attempts
    return 1, MAX_WINDOW if field == "window" else limits.horizon


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message and its due time.

    Exactly one field sets the due time: `delay_time` (ms from now, by the clock of Redis), `expect_date` (Unix ms) or
    `delay_level` (from 1; RocketMQ's levels). A past date means now. A `window` (ms) spreads due times by the ids alone:
    many messages are spread evenly, and a repeated call gets the same due time. A duration may be a `timedelta` or text
    such as '30m', and a date may be an aware `datetime` or RFC 3339. The fields are ms then.

    An `id` that ends in a dot and four digits of 0-9 a-f, such as 'invoice-17.2026', chooses its queue by these digits. A
    series of such ids is in one queue, so give them another ending.

    With `again`, a message with your own id is scheduled although a message of this id was certainly cancelled. Any other
    end of the id still refuses it. A repeated call schedules no second message, but it also lifts a cancel that came
    after the first call.

    `body` is a string, bytes, or any JSON value. `reserved` are keys by which delayq itself counts. They are not part of
    the call, and are never delivered. Change a message by `msgspec.structs.replace`.
    """

    topic: str
    body: Any = ""
    delay_time: int | None = None
    expect_date: int | None = None
    delay_level: int | None = None
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}
    id: str | None = None
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None
    window: int | None = None
    again: bool = False
    reserved: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the given types may be more than those of the fields

        def __init__(
            self,
            *,
            topic: str,
            body: Any = "",
            delay_time: Duration | None = None,
            expect_date: Instant | None = None,
            delay_level: int | None = None,
            tags: str = "",
            keys: tuple[str, ...] = (),
            properties: Mapping[str, str] = {},
            id: str | None = None,
            ordering_key: str = "",
            max_attempts: int | None = None,
            expire_after: Duration | None = None,
            window: Duration | None = None,
            again: bool = False,
            reserved: tuple[str, ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        # A value that cannot be read stays unchanged: `validate` reports it, and the other messages of a call are
        # scheduled.
        if (when := self.expect_date) is not None and type(when) is not int:
            self._read("expect_date", instant_ms)
        if (delay := self.delay_time) is not None and type(delay) is not int:
            self._read("delay_time", duration_ms)
        if (after := self.expire_after) is not None and type(after) is not int:
            self._read("expire_after", duration_ms)
        if (window := self.window) is not None and type(window) is not int:
            self._read("window", duration_ms)

    def _read(self, field: str, read: Callable[[Any], Any]) -> None:
        with suppress(ValueError, OverflowError):
            msgspec.structs.force_setattr(self, field, read(getattr(self, field)))

    def validate(self, limits: Limits, now: int) -> None:
        """Raise InvalidMessage for the first invalid field. `now` (Unix ms) bounds `expect_date`."""
        if type(self.topic) is not str or self.topic not in _good_topics:
            check_topic(self.topic)
            if len(_good_topics) < 10_000:  # topics come from outside, so the cache is bounded
                _good_topics.add(self.topic)
        if limits.namespace != NAMESPACE:
            check_in_namespace(self.topic, limits.namespace)
        if self.id is not None:
            check_id(self.id)
        if self.again is not False:
            again: Any = self.again  # callers without type checks may give any value
            if again is not True or self.id is None:
                raise InvalidMessage("again", "needs an id of your own")
        when, last = self.expect_date, now + limits.horizon
        if (
            when is None
            or self.delay_time is not None
            or self.delay_level is not None
            or type(when) is not int
            or not EARLIEST <= when <= last
            or when > MAX_DUE
        ):
            self._check_due(limits, now)
        if self.tags != "":
            _check_text("tags", self.tags, limits.tags)
        if self.keys:
            self._check_keys(limits)
        if self.ordering_key != "":
            _check_text("orderingKey", self.ordering_key, limits.ordering_key)
        if self.properties:
            self._check_properties(limits)
        if self.max_attempts is not None:
            _check_int("maxAttempts", self.max_attempts, *bounds_of("maxAttempts", limits))
        if self.expire_after is not None:
            _check_int("expireAfter", self.expire_after, *bounds_of("expireAfter", limits))
        if (window := self.window) is not None and (
            type(window) is not int
            or when is None
            or not 0 < window <= MAX_WINDOW
            or (end := when + window) > last
            or end > MAX_DUE
        ):
            self._check_window(limits, now)

    def _check_due(self, limits: Limits, now: int) -> None:
        given = (self.delay_time is not None) + (self.expect_date is not None) + (self.delay_level is not None)
        if given != 1:
            how = "none" if given == 0 else "more than one"
            raise InvalidMessage(
                "delayTime", f"give exactly one of delayTime, expectDate and delayLevel; {how} was given"
            )
        if self.delay_time is not None:
            _check_int("delayTime", self.delay_time, 0, limits.horizon)
        elif self.expect_date is not None:
            try:
                if type(self.expect_date) is int:
                    check_unix_ms(self.expect_date)
            except ValueError as error:
                raise InvalidMessage("expectDate", str(error)) from None
            _check_int("expectDate", self.expect_date, EARLIEST, min(now + limits.horizon, MAX_DUE))
        else:
            _check_int("delayLevel", self.delay_level, 1, 2**31)

    def _check_window(self, limits: Limits, now: int) -> None:
        window = self.window
        _check_int("window", window, *bounds_of("window", limits))
        assert window is not None
        last = limits.horizon
        if self.expect_date is not None:
            asked, last = self.expect_date, min(now + limits.horizon, MAX_DUE)
        elif self.delay_time is not None:
            asked = self.delay_time
        else:
            asked = level_delay(limits.delay_levels, self.delay_level)
        if asked + window > last:
            raise InvalidMessage("window", f"ends {asked + window - last} ms later than the latest due time")

    def _check_keys(self, limits: Limits) -> None:
        if not isinstance(self.keys, (tuple, list)):
            raise InvalidMessage("keys", "must be a list of texts")
        if len(self.keys) > limits.keys:
            raise InvalidMessage("keys", f"has {len(self.keys)} keys; at most {limits.keys} are allowed")
        for key in self.keys:
            if check_key(key, limits).startswith(RESERVED):
                raise InvalidMessage("keys", f"business keys that begin with {RESERVED!r} are reserved")
        if len(self.keys) > 1 and len(set(self.keys)) != len(self.keys):
            raise InvalidMessage("keys", "a key is given twice; give each key once")

    def _check_properties(self, limits: Limits) -> None:
        if not isinstance(self.properties, Mapping):
            raise InvalidMessage("properties", "must be names with their values")
        given = self.properties.keys() - _ADDED if len(self.properties) > limits.properties else ()
        if len(given) > limits.properties:
            raise InvalidMessage("properties", f"has more than {limits.properties} properties")
        size = 0
        for name, value in self.properties.items():
            if (
                type(name) is str
                and type(value) is str
                and (text := name + value).isascii()
                and text.isprintable()
                and 0 < len(name) <= limits.property_name
                and len(value) <= limits.property_value
            ):
                size += len(text)
                continue  # almost all of them, at a fraction of the cost
            _check_text("properties", name, limits.property_name)
            if value != "":
                _check_text("properties", value, limits.property_value)
            size += len(name.encode()) + len(value.encode())
        if size > limits.all_properties:
            added = [(name, self.properties[name]) for name in _ADDED if name in self.properties]
            size -= sum(len(name.encode()) + len(value.encode()) for name, value in added)
        if size > limits.all_properties:
            raise InvalidMessage("properties", f"has more than {limits.all_properties} bytes in all")


def level_delay(levels: Sequence[int], level: int | None) -> int:
    """Return the delay of a level, in ms. A level above the last one means the last."""
    assert level is not None
    return levels[min(level, len(levels)) - 1]


def check_id(value: object) -> str:
    """Return the id. Raises InvalidMessage."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidMessage("id", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -, not '.' or '..'")
    return value


def check_call(value: object) -> str:
    """Return the name of a call. Raises InvalidMessage."""
    if not isinstance(value, str) or not _CALL.fullmatch(value):
        raise InvalidMessage("call", "has 1 to 64 characters of A-Z a-z 0-9 _ -")
    return value


def new_call() -> str:
    """Return a new name for a call. A caller makes it before the first attempt, so that all attempts have the same name."""
    return os.urandom(16).hex()


def named(call: str | None) -> str:
    """Return the name that a caller gives its call, or a new one. Raises InvalidMessage."""
    return new_call() if call is None else check_call(call)


def check_topic(value: object, field: str = "topic") -> str:
    """Return the topic (or route name). Raises InvalidMessage."""
    if not isinstance(value, str) or not _TOPIC.fullmatch(value):
        raise InvalidMessage(field, "must be 1 to 255 characters of A-Z a-z 0-9 . _ : -, not beginning with 'delayq:'")
    return value


def check_in_namespace(topic: str, namespace: str) -> None:
    """Raise InvalidMessage for a topic that would be taken for a key of delayq: its stream is named after the namespace."""
    if topic.startswith(f"{namespace}:") or (namespace != NAMESPACE and _OWN_NAMES.fullmatch(topic)):
        reason = f"{topic!r} names keys of delayq in the namespace {namespace!r}; choose another topic"
        raise InvalidMessage("topic", reason)


def check_key(key: object, limits: Limits, field: str = "keys") -> str:
    """Return the business key. Raises InvalidMessage."""
    if type(key) is str and key.isascii() and key.isprintable() and " " not in key and 0 < len(key) <= limits.key:
        return key  # almost all of them, at a fraction of the cost
    if not isinstance(key, str) or not key or _SPACE_OR_CONTROL.search(key):
        raise InvalidMessage(field, "a key must not be empty, or contain white space or control characters")
    _check_text(field, key, limits.key)
    return key


def from_key(name: str) -> str:
    """Return the reserved key of a name with a quota."""
    return f"{RESERVED}from:{name}"


def topic_key(topic: str) -> str:
    """Return the reserved key of the messages of a topic that a policy indexes."""
    return f"{RESERVED}topic:{topic}"


def tag_key(topic: str, tags: str) -> str:
    """Return the same for messages with these tags: the part after the last colon has no colon and no white space."""
    return f"{RESERVED}tag:{topic}:{quote(tags, safe='')}"


def _check_text(field: str, value: object, limit: int) -> None:
    if type(value) is str and value.isascii() and value.isprintable() and 0 < len(value) <= limit:
        return  # almost all of them, at a fraction of the cost
    if not isinstance(value, str):
        raise InvalidMessage(field, "is text")
    if not value:
        raise InvalidMessage(field, "is empty")
    if _CONTROL.search(value):
        raise InvalidMessage(field, "has control characters or line breaks; remove them")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidMessage(field, "is not valid Unicode (a lone surrogate)") from None
    if size > limit:
        raise InvalidMessage(field, f"has {size} bytes of UTF-8; at most {limit} are allowed")


def given_duration(field: str, value: Duration | None) -> int | None:
    """Return ms of a caller's duration. Raises InvalidMessage."""
    return _given(field, value, duration_ms)


def given_wait(value: Duration | None) -> int:
    """Return ms that a caller waits, 0 for None. Raises InvalidMessage."""
    wait = given_duration("wait", value) or 0
    if wait < 0:
        raise InvalidMessage("wait", "must not be negative; 0s does not wait")
    return wait


def given_instant(field: str, value: Instant | None) -> int | None:
    """Return Unix ms of a caller's time. Raises InvalidMessage."""
    return _given(field, value, instant_ms)


def _given(field: str, value: Any, read: Callable[[Any], Any]) -> int | None:
    try:
        found = read(value)
    except (ValueError, OverflowError) as error:
        raise InvalidMessage(field, str(error)) from None
    if found is not None and type(found) is not int:
        raise InvalidMessage(field, "must be an integer")
    return found


def _check_int(field: str, value: object, least: int, most: int) -> None:
    if field in _READ and type(value) is not int:
        _given(field, value, _READ[field])
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessage(field, "must be an integer")
    if not least <= value <= most:
        raise InvalidMessage(field, f"must be between {least} and {most}, not {value}")


def text_of(body: bytes) -> str:
    """Return the body of a received message as text. Raises InvalidMessage."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidMessage("body", "is not UTF-8: read its bytes (`body`)") from None


def value_of(body: bytes) -> Any:
    """Return the value of a body that is JSON, with whole numbers of any size. Raises InvalidMessage."""
    try:
        return json.loads(text_of(body))
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("body", f"is no JSON ({error}): read it as text or bytes (`text`, `body`)") from None
