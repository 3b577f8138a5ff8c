from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.base.errors import InvalidMessage
from delayq.domain.codec import CorruptRecord, Record, due_head, encode, with_policy
from delayq.domain.message import Limits, Message
from delayq.store.keys import new_id
from tests.support.messages import json_values, messages

LIMITS = Limits()
NOW = 2_000_000_000_000
NAN = float("nan")


def record_of(message: Message, *, due: int = 1_800_000_000_000, mark: int = 0) -> bytes:
    """A record as the schedule script writes it."""
    moved = b"%013d" % due if mark & 1 else b""
    return b"0000001%013d%d" % (due, mark) + encode(message, LIMITS) + moved


def message_with(body: Any, **fields: Any) -> Message:
    return Message(topic="t", delay_time=0, body=body, **fields)


@given(messages(), st.integers(0, 10**13 - 1), st.integers(0, 3))
def test_a_message_comes_back_as_it_was(message: Message, due: int, mark: int) -> None:
    message.validate(LIMITS, now=2_000_000_000_000)
    record = Record(record_of(message, due=due, mark=mark))
    back = record.message("the-id")
    assert (back.id, back.expect_date) == ("the-id", due)
    for field in ("topic", "tags", "keys", "ordering_key", "max_attempts", "expire_after"):
        assert getattr(back, field) == getattr(message, field), field
    assert back.properties == dict(message.properties)
    assert back.body == message.body
    assert type(back.body) is type(message.body)
    assert (record.asked, record.remembered, record.keyed) == (due, mark >= 2, message.ordering_key != "")
    expected = None if message.expire_after is None else due + message.expire_after
    assert record.expires_at == expected


AWKWARD: list[Any] = [
    "", "\0", "é\0😀\r\n", b"", b"\0\xff", bytes(range(256)), None, [], {"a": [1.5, "\0"]}, 0, False
]  # fmt: skip


def test_awkward_bodies_come_back_as_they_were() -> None:
    for body in AWKWARD:
        back = Record(record_of(message_with(body))).body
        assert back == body
        assert type(back) is type(body)
    for body in (bytearray(b"\0\xff"), memoryview(b"\0\xff")):
        assert Record(record_of(message_with(body))).body == b"\0\xff"


@pytest.mark.parametrize("body", [lambda x: x, lambda x: [None, {"a": (1, x)}], lambda x: {"a": {"b": [x]}}])
def test_a_number_that_json_does_not_know_is_refused(body: Callable[[float], Any]) -> None:
    for number in (NAN, float("inf"), -float("inf")):
        with pytest.raises(InvalidMessage, match=f"body: has the number {number}") as caught:
            encode(message_with(body(number)), LIMITS)
        assert caught.value.field == "body"
    assert Record(record_of(message_with([body(1.5), msgspec.Raw(b"null")]))).body[1] is None


HALF_EMOJIS = ["\ud83d", {"a": "\ud83d"}, ["ok", "\ude00"], {"\ud83d": 1}, msgspec.Raw(b'"\\ud83d"')]


@pytest.mark.parametrize("body", HALF_EMOJIS, ids=["text", "value", "item", "name", "raw"])
def test_half_an_emoji_is_named_as_a_lone_surrogate(body: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^body: .*a lone surrogate"):
        encode(message_with(body), LIMITS)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_raw_json_is_stored_compact_and_equal(value: Any) -> None:
    raw = msgspec.Raw(b" " + msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    record = Record(record_of(message_with(raw)))
    assert record.body == value
    assert record.payload == msgspec.json.encode(value)


def test_the_same_content_has_the_same_bytes_whatever_the_order_of_its_properties() -> None:
    one = message_with("x", properties={"a": "1", "b": "2"})
    other = message_with("x", properties={"b": "2", "a": "1"})
    assert encode(one, LIMITS) == encode(other, LIMITS)


@given(messages(), messages())
def test_other_content_has_other_bytes(one: Message, other: Message) -> None:
    def content(message: Message) -> tuple[Any, ...]:
        relative = message.expect_date is None
        options = (message.max_attempts, message.expire_after, message.tags, message.keys, message.ordering_key)
        body = msgspec.json.encode(message.body) if not isinstance(message.body, bytes) else message.body
        return (message.topic, type(message.body), body, dict(message.properties), relative, options)

    if content(one) != content(other):
        assert encode(one, LIMITS) != encode(other, LIMITS)
        assert Record(record_of(one)).call != Record(record_of(other)).call


@given(messages(), st.lists(st.sampled_from([b"delayq:a", b"delayq:tag:t:%20"])), st.none() | st.integers(1, 10**6),
       st.integers(0, 10**6))  # fmt: skip
def test_what_a_policy_adds_is_no_part_of_the_call_and_nobody_sees_it(
    message: Message, reserved: list[bytes], expire_after: int | None, spread: int
) -> None:
    body = encode(message, LIMITS, due_head(NOW))
    plain, made = (Record(b"0" * 7 + one) for one in (body, with_policy(body, reserved, expire_after, spread)))
    assert (made.call, made.asked) == (plain.call, NOW + spread)
    assert message.expect_date is None or (made.first_asked, made.digest) == (NOW, plain.digest)
    added = {"expect_date": made.asked, "expire_after": made.expire_after}  # both are shown with the message
    assert made.message("a") == msgspec.structs.replace(plain.message("a"), **added)
    assert made.own_expire_after == plain.own_expire_after
    assert made.index_keys == plain.keys + tuple(key.decode() for key in reserved)
    assert made.expire_after == (plain.expire_after or expire_after)


def test_a_body_at_its_limit_is_taken_and_one_byte_more_is_too_large() -> None:
    limits = Limits(body=10)
    bodies: list[tuple[Any, Any]] = [("é" * 5, "é" * 5 + "x"), (b"x" * 10, b"x" * 11), (["x" * 6], ["x" * 7])]
    for fits, over in bodies:
        encode(message_with(fits), limits)
        with pytest.raises(InvalidMessage, match="body: has 11 bytes; at most 10 are allowed") as caught:
            encode(message_with(over), limits)
        assert caught.value.too_large


def test_a_body_that_cannot_be_stored_is_refused_in_one_sentence() -> None:
    for body in ("\ud800", ["\udfff"], {"a": object()}, {1, object()}, msgspec.Raw(b"{nope"), {(1, 2): 3}):
        with pytest.raises(InvalidMessage) as caught:
            encode(message_with(body), LIMITS)
        assert caught.value.field == "body"
        assert "\n" not in str(caught.value)


@given(messages(), st.data(), st.binary(max_size=200))
def test_a_record_cut_short_or_made_longer_is_corrupt_and_any_bytes_are_no_fault(
    message: Message, data: st.DataObject, any_bytes: bytes
) -> None:
    with suppress(CorruptRecord):
        Record(any_bytes)
    raw = record_of(message)
    for broken in (raw[: data.draw(st.integers(0, len(raw) - 1))], raw + b"x"):
        with pytest.raises(CorruptRecord):
            Record(broken)


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), min_size=1), st.data())
def test_damaged_properties_are_corrupt_or_still_properties(properties: dict[str, str], data: st.DataObject) -> None:
    raw = bytearray(record_of(message_with("", properties=properties)))
    start = raw.index(b"\0", 35 + 1)  # behind the topic
    raw[data.draw(st.integers(start, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(CorruptRecord, UnicodeDecodeError):
        assert isinstance(Record(bytes(raw)).properties, dict)


def test_an_asked_due_that_is_not_thirteen_digits_is_corrupt() -> None:
    raw = record_of(message_with("x"))
    for asked in (b" 180000000000", b"+180000000000", b"1_80000000000", b"1800000000.00", b"180000000000\n"):
        with pytest.raises(CorruptRecord):
            Record(raw[:7] + asked + raw[20:])


# -- ids -----------------------------------------------------------------------------------------------------------------


def test_ids_are_short_valid_and_different_and_sort_by_the_time_at_which_they_were_made() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert len(set(ids)) == 10_000
    assert all(re.fullmatch(r"[A-Za-z0-9_:]{22}", id) for id in ids)
    ids.clear()
    for _ in range(20):
        ids.append(new_id())
        now = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == now:
            pass
    assert ids == sorted(ids)
