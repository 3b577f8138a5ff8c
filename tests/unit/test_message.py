from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delayq.errors import InvalidMessage
from delayq.message import DELAY_LEVELS, MAX_DUE, Limits, Message, check_id, check_key, check_topic
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

# What would change a hash slot, a pattern, a line, a ticket or a shell.
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


@pytest.mark.parametrize("value", [*AWKWARD, ".", "..", "x" * 129, 5, None, True, b"abc", ["a"]], ids=repr)
def test_a_wrong_id_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_id(value)
    assert caught.value.field == "id"
    if value is not None:
        assert complaint(id=value).field == "id"


@pytest.mark.parametrize("value", [*AWKWARD, "x" * 256, "delayq:", "delayq:x", 5, None, b"abc"], ids=repr)
def test_a_wrong_topic_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMessage) as caught:
        check_topic(value)
    assert caught.value.field == "topic"
    assert complaint(topic=value).field == "topic"


@pytest.mark.parametrize("value", ["a", "A.b_c:d-e", "x" * 128, "0", "-", "...", ".a", "-.", "id.00ff"])
def test_a_right_id_is_itself(value: str) -> None:
    assert check_id(value) == value


@pytest.mark.parametrize("value", ["a", "orders.v1:eu-west_1", "x" * 255, "delayq", "Delayq:x", "x.delayq:"])
def test_a_right_topic_is_itself(value: str) -> None:
    assert check_topic(value) == value


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


@pytest.mark.parametrize(
    "keys",
    [("",), ("a b",), ("a\tb",), ("a\0",), ("\ud800",), ("a", "a"), ("x" * 256,), ("é" * 128,), (5,), (None,), (["a"],),
     tuple(f"k{number}" for number in range(17)), "abc", {"a": 1}, 5, ("k", "delayq:from:shop")],
    ids=repr,
)  # fmt: skip
def test_wrong_keys_are_refused(keys: Any) -> None:
    assert complaint(keys=keys).field == "keys"


@pytest.mark.parametrize("field", ["tags", "ordering_key"])
@pytest.mark.parametrize(
    "value", ["\0", "a\nb", "a\rb", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ud800", "x" * 256, "é" * 128, 5, None, b"a"],
    ids=repr,
)  # fmt: skip
def test_wrong_text_is_refused(field: str, value: Any) -> None:
    assert complaint(**{field: value}).field == {"tags": "tags", "ordering_key": "orderingKey"}[field]


@pytest.mark.parametrize(
    "properties",
    [{"": "v"}, {"a\r\nb": "v"}, {"n": "a\0"}, {"n": "\x1b"}, {"n": "\ud800"}, {"\udfff": ""}, {"n": 5}, {"n": None}, {5: "v"},
     {"n" * 256: "v"}, {"n": "v" * 8_193}, {f"n{number}": "" for number in range(65)},
     {f"n{number}": "v" * 8_000 for number in range(5)}, [("a", "b")], "ab"],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_wrong_properties_are_refused(properties: Any) -> None:
    assert complaint(properties=properties).field == "properties"


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


# -- when ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{"delay_time": None}, {"delay_time": 1, "expect_date": 1}, {"delay_time": 1, "delay_level": 1},
     {"expect_date": 1, "delay_level": 1}, {"delay_time": 0, "expect_date": 0, "delay_level": 1}],
    ids=str,
)  # fmt: skip
def test_exactly_one_due_is_given(fields: dict[str, Any]) -> None:
    assert "exactly one" in complaint(**fields).reason


WRONG_NUMBERS = [True, False, 1.0, 1.5, "5", "", float("nan"), float("inf"), 1e400, b"5", [], {}]


@pytest.mark.parametrize("field", ["delay_time", "expect_date", "delay_level", "max_attempts", "expire_after"])
@pytest.mark.parametrize("value", [*WRONG_NUMBERS, -1, 2**63, 10**400], ids=lambda value: repr(value)[:20])
def test_what_is_no_whole_number_in_its_range_is_refused(field: str, value: Any) -> None:
    names = {"delay_time": "delayTime", "expect_date": "expectDate", "delay_level": "delayLevel"}
    names |= {"max_attempts": "maxAttempts", "expire_after": "expireAfter"}
    assert complaint(**{field: value}).field == names[field]


@pytest.mark.parametrize("field", ["delay_level", "max_attempts", "expire_after"])
def test_what_counts_from_one_refuses_nought(field: str) -> None:
    nought: dict[str, Any] = {field: 0}
    assert "lies between 1 and" in complaint(**nought).reason


def test_a_date_may_lie_in_the_past_and_as_far_ahead_as_the_horizon() -> None:
    for date in (0, NOW - 1, NOW + LIMITS.horizon):
        Message(topic="t", expect_date=date).validate(LIMITS, NOW)
    assert complaint(expect_date=NOW + LIMITS.horizon + 1).field == "expectDate"


def test_no_horizon_reaches_beyond_what_a_record_can_hold() -> None:
    far = Limits(horizon=10**15)
    Message(topic="t", expect_date=MAX_DUE).validate(far, NOW)
    assert complaint(far, expect_date=MAX_DUE + 1).field == "expectDate"


def test_the_levels_are_those_of_rocketmq() -> None:
    assert len(DELAY_LEVELS) == 18
    assert DELAY_LEVELS[0] == 1_000
    assert DELAY_LEVELS[-1] == 7_200_000
    assert list(DELAY_LEVELS) == sorted(DELAY_LEVELS)
