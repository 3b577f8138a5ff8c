from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.base.errors import InvalidMessage
from delayq.base.times import EARLIEST
from delayq.domain.message import DELAY_LEVELS, MAX_DUE, Limits, Message, check_id, check_key, check_topic
from tests.support.messages import messages

LIMITS = Limits()
NOW = 1_800_000_000_000


def complaint(limits: Limits = LIMITS, **fields: Any) -> InvalidMessage:
    """What is said of a message that is right but for these fields."""
    given = {"delay_time", "expect_date", "delay_level"} & fields.keys()
    message = Message(**({"topic": "t"} | ({} if given else {"delay_time": 0}) | fields))
    with pytest.raises(InvalidMessage) as caught:
        message.validate(limits, NOW)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.reason}"
    assert "\n" not in caught.value.reason
    return caught.value


@given(messages())
def test_a_right_message_is_taken(message: Message) -> None:
    message.validate(LIMITS, now=2_000_000_000_000)


# -- ids and topics ------------------------------------------------------------------------------------------------------

# Characters that would change a hash slot, a pattern, a line, a ticket or a shell.
AWKWARD = [
    "",
    " ",
    "a b",
    "a/b",
    "{a}",
    "a}",
    "*",
    "a\0b",
    "a\n",
    "\na",
    "é",
    "a\u2028",
    "😀",
    "a,b",
    "a;b",
    "a'b",
    "~",
]
WRONG_IDS: list[Any] = [*AWKWARD, ".", "..", "x" * 129, 5, None, True, b"abc", ["a"]]
WRONG_TOPICS: list[Any] = [*AWKWARD, "x" * 256, "delayq:", "delayq:x", 5, None, b"abc"]


@pytest.mark.parametrize(
    ("field", "check", "values"), [("id", check_id, WRONG_IDS), ("topic", check_topic, WRONG_TOPICS)]
)
def test_a_wrong_id_or_topic_is_refused(field: str, check: Callable[[Any], Any], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidMessage) as caught:
            check(value)
        assert caught.value.field == field, value
        if (field, value) != ("id", None):
            assert complaint(**{field: value}).field == field, value


def test_a_right_id_or_topic_is_itself() -> None:
    for id in ("a", "A.b_c:d-e", "x" * 128, "0", "-", "...", ".a", "-.", "id.00ff"):
        assert check_id(id) == id
    for topic in ("a", "orders.v1:eu-west_1", "x" * 255, "delayq", "Delayq:x", "x.delayq:"):
        assert check_topic(topic) == topic


@given(st.text())
@example("a\n")
@example("..")
def test_any_text_is_an_id_exactly_if_all_its_characters_are_allowed(text: str) -> None:
    allowed = bool(re.fullmatch(r"[A-Za-z0-9._:-]{1,128}\Z", text)) and text not in (".", "..")
    try:
        check_id(text)
        assert allowed
    except InvalidMessage:
        assert not allowed


# -- keys, tags, ordering key, properties --------------------------------------------------------------------------------


@given(st.text())
@example("a\x1cb")
@example("a\x85b")
@example("a\u2028b")
@example("a\u3000b")
@example("\ufeff")
def test_a_key_that_is_taken_can_be_split_off_again(text: str) -> None:
    try:
        check_key(text, LIMITS)
    except InvalidMessage:
        return
    assert f"{text} {text}".split() == [text, text]
    assert "\0" not in text
    text.encode()


WRONG_KEYS: list[Any] = [
    ("",), ("a b",), ("a\tb",), ("a\0",), ("\ud800",), ("a", "a"), ("x" * 256,), ("é" * 128,), (5,), (None,), (["a"],),
    tuple(f"k{number}" for number in range(17)), "abc", {"a": 1}, 5, ("k", "delayq:from:shop"),
]  # fmt: skip
WRONG_TEXTS: list[Any] = [
    "\0", "a\nb", "a\rb", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ud800", "x" * 256, "é" * 128, 5, None, b"a"
]  # fmt: skip
WRONG_PROPERTIES: list[Any] = [
    {"": "v"}, {"a\r\nb": "v"}, {"n": "a\0"}, {"n": "\x1b"}, {"n": "\ud800"}, {"\udfff": ""}, {"n": 5}, {"n": None}, {5: "v"},
    {"n" * 256: "v"}, {"n": "v" * 8_193}, {f"n{number}": "" for number in range(65)},
    {f"n{number}": "v" * 8_000 for number in range(5)}, [("a", "b")], "ab",
]  # fmt: skip
#: Each is no whole number in its range.
WRONG_NUMBERS: list[Any] = [
    True, False, 1.0, 1.5, "5", "", float("nan"), float("inf"), 1e400, b"5", [], {}, -1, 2**63, 10**400
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "name", "values"),
    [
        ("keys", "keys", WRONG_KEYS),
        ("tags", "tags", WRONG_TEXTS),
        ("ordering_key", "orderingKey", WRONG_TEXTS),
        ("properties", "properties", WRONG_PROPERTIES),
        ("delay_time", "delayTime", WRONG_NUMBERS),
        ("expect_date", "expectDate", WRONG_NUMBERS),
        ("delay_level", "delayLevel", WRONG_NUMBERS),
        ("max_attempts", "maxAttempts", WRONG_NUMBERS),
        ("expire_after", "expireAfter", WRONG_NUMBERS),
    ],
)
def test_wrong_values_of_a_field_are_refused(field: str, name: str, values: list[Any]) -> None:
    """F13 (due time negative, 0, NaN, inf, 1e400, float, string, bool, past, year 9999, > 2⁵³): 400 for no due time,
    a negative one, or one beyond the horizon.

    The past means now.
    """
    for value in values:
        assert complaint(**{field: value}).field == name, value
    if field in ("delay_level", "max_attempts", "expire_after"):
        zero: dict[str, Any] = {field: 0}
        assert "must be between 1 and" in complaint(**zero).reason


def test_everything_at_its_limit_is_taken() -> None:
    Message(
        topic="t" * 255,
        id="i" * 128,
        delay_time=LIMITS.horizon,
        tags="é" * 127 + "x",
        keys=tuple(f"{number:0255}" for number in range(16)),
        ordering_key="k" * 255,
        properties={f"{number:0255}": "" for number in range(64)} | {f"{0:0255}": "v" * 8_192},
        max_attempts=1_000,
        expire_after=LIMITS.horizon,
    ).validate(LIMITS, NOW)


def test_the_properties_that_delayq_adds_do_not_count_for_the_bounds() -> None:
    own = {f"delayq-{name}": "v" * 100 for name in ("hand-backs", "origin", "reasons", "group")} | {"backfill": "run"}
    many = {f"p{number}": "" for number in range(64)}
    large = {f"p{number}": "v" * 8_190 for number in range(4)}  # 32,768 bytes with their names
    for each in (many, large):
        Message(topic="t", delay_time=1, properties=each | own).validate(LIMITS, NOW)
    assert complaint(properties=many | own | {"delayq-other": ""}).reason == "has more than 64 properties"
    assert complaint(properties=large | own | {"p": ""}).reason == "has more than 32768 bytes in all"


# -- when ----------------------------------------------------------------------------------------------------------------


def test_exactly_one_due_is_given() -> None:
    given: list[dict[str, Any]] = [
        {"delay_time": None}, {"delay_time": 1, "expect_date": 1}, {"delay_time": 1, "delay_level": 1},
        {"expect_date": 1, "delay_level": 1}, {"delay_time": 0, "expect_date": 0, "delay_level": 1},
    ]  # fmt: skip
    for fields in given:
        assert "exactly one" in complaint(**fields).reason, fields


def test_a_date_may_lie_in_the_past_and_as_far_ahead_as_the_horizon() -> None:
    for date in (EARLIEST, NOW - 1, NOW + LIMITS.horizon):
        Message(topic="t", expect_date=date).validate(LIMITS, NOW)
    assert complaint(expect_date=NOW + LIMITS.horizon + 1).field == "expectDate"
    far = Limits(horizon=10**15)  # no horizon reaches beyond what a record can hold
    Message(topic="t", expect_date=MAX_DUE).validate(far, NOW)
    assert complaint(far, expect_date=MAX_DUE + 1).field == "expectDate"


@pytest.mark.parametrize("date", [-(10**12), -1, 0, 1, NOW // 1000, EARLIEST - 1, "1970-01-01T00:00:00Z"])
def test_a_date_before_2001_is_refused_since_it_is_in_seconds_most_likely(date: Any) -> None:
    error = complaint(expect_date=date)
    assert (error.field, "is before 2001" in error.reason) == ("expectDate", True)
    assert (f"(seconds? {NOW})" in error.reason) is (date == NOW // 1000)


@pytest.mark.parametrize(
    "date", ["1999-12-31T23:59:59Z", datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), 946_684_799_000]
)
def test_a_date_of_the_last_century_is_named_as_a_date_and_not_as_seconds(date: Any) -> None:
    assert complaint(expect_date=date).reason == "1999-12-31T23:59:59.000Z is before 2001"


def test_the_levels_are_those_of_rocketmq() -> None:
    assert len(DELAY_LEVELS) == 18
    assert DELAY_LEVELS[0] == 1_000
    assert DELAY_LEVELS[-1] == 7_200_000
    assert list(DELAY_LEVELS) == sorted(DELAY_LEVELS)
