"""The readers of delivered messages: what consumers of each target have of a message."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from delayq import InvalidMessage
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.handing_back import hand_back_of
from delayq.domain.codec import json_of
from delayq.http.calls import hand_back_json, message_json
from delayq.received import Received, read_kafka, read_rabbitmq, read_rocketmq, read_stream
from delayq.webhooks import read_webhook

PROPERTIES = {"color": "red", "empty": "", "delayq-hand-backs": "2", "delayq-origin": "unpaid-42"}
MESSAGE = Received(
    id="unpaid-42.b2", topic="orders:unpaid", due=1_801_384_200_000, attempt=3, tags="new", keys=("order-42", "shop-7"),
    ordering_key="42", properties=PROPERTIES, body=b"\xff{}", content_type="application/octet-stream",
)  # fmt: skip
OWN = {"due": "1801384200000", "attempt": "3", "tags": "new", "keys": "order-42 shop-7"}


def from_stream() -> Received:
    fields = {"id": MESSAGE.id, "topic": MESSAGE.topic, "orderingKey": "42", **OWN}
    fields |= {f"p:{name}": one for name, one in PROPERTIES.items()}
    return read_stream({name.encode(): one.encode() for name, one in fields.items()} | {b"body": MESSAGE.body})


def from_kafka() -> Received:
    headers = {
        "id": MESSAGE.id,
        "topic": MESSAGE.topic,
        **OWN,
        "ordering-key": "42",
        "content-type": MESSAGE.content_type,
    }
    headers |= {f"p:{name}": one for name, one in PROPERTIES.items()}
    return read_kafka("orders-unpaid", [(name, one.encode()) for name, one in headers.items()], MESSAGE.body)


def from_rabbitmq() -> Received:
    headers: dict[str, Any] = {f"delayq-{name}": one for name, one in OWN.items()} | PROPERTIES
    headers |= {"delayq-ordering-key": "42", "delayq-due": MESSAGE.due}
    headers |= {"x-death": [{"count": 1}], "x-delivery-count": 4}  # the broker's own
    given = {"message_id": MESSAGE.id, "type": MESSAGE.topic, "content_type": MESSAGE.content_type}
    return read_rabbitmq(SimpleNamespace(headers=headers, **given), MESSAGE.body)


def from_rocketmq() -> Received:
    own = {"id": MESSAGE.id, "topic": MESSAGE.topic, "due": OWN["due"], "attempt": "3", "empty": '["empty"]'}
    properties = {name: one for name, one in PROPERTIES.items() if one} | {"__SHARDINGKEY": "42"}
    properties |= {f"delayq_{name}": one for name, one in own.items()}
    given = {"topic": "orders-unpaid", "tag": "new", "keys": ("order-42", "shop-7"), "message_group": "42"}
    return read_rocketmq(SimpleNamespace(properties=properties, body=MESSAGE.body, message_id="m", **given))


def from_webhook() -> Received:
    headers = {
        "Ce-Id": MESSAGE.id, "Ce-Type": "orders%3Aunpaid", "Ce-Time": "2027-01-31T08:30:00.000Z", "Ce-Attempt": "3",
        "Ce-Tags": "new", "Ce-Keys": "order-42%20shop-7", "Ce-Partitionkey": "42", "Content-Type": MESSAGE.content_type,
        "Delayq-Properties": '{"color":"red","empty":"","delayq-hand-backs":"2","delayq-origin":"unpaid-42"}',
    }  # fmt: skip
    return read_webhook(headers, MESSAGE.body)


@pytest.mark.parametrize(
    ("read", "lacks"),
    [
        (from_stream, {"content_type"}),
        (from_kafka, set()),
        (from_rabbitmq, set()),
        (from_rocketmq, {"content_type"}),
        (from_webhook, set()),
    ],
)
def test_a_reader_returns_everything_that_its_target_carries(read: Callable[[], Received], lacks: set[str]) -> None:
    found = read()
    for field in Received.__struct_fields__:
        assert getattr(found, field) == ("" if field in lacks else getattr(MESSAGE, field)), field
    assert found.hand_backs == 2


@pytest.mark.parametrize("count", [None, "", "-1", "x", "²", "9" * 5_000])
def test_a_message_without_a_count_was_never_handed_back(count: str | None) -> None:
    properties = {} if count is None else {"delayq-hand-backs": count}
    assert Received(id="a", topic="t", due=1, body=b"", properties=properties).hand_backs == 0


def rocketmq(properties: dict[str, str]) -> SimpleNamespace:
    return SimpleNamespace(
        topic="t", tag=None, keys=None, message_group="m", message_id="m", properties=properties, body=b"x"
    )


def test_a_message_of_rocketmq_without_an_ordering_key_has_none_although_it_is_a_group_by_itself() -> None:
    given = rocketmq({"delayq_id": "a", "delayq_due": "1"})
    assert (read_rocketmq(given).ordering_key, read_rocketmq(given).topic) == ("", "t")


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda: read_stream({"topic": "t", "due": "1"}), "id"),
        (lambda: read_stream({"id": "a", "topic": "t", "due": "soon"}), "due"),
        (lambda: read_stream({"id": "a", "topic": "t", "due": "9" * 5_000}), "due"),
        (lambda: read_stream({"id": "a", "topic": "t", "due": "253402300800000"}), "due"),
        (lambda: read_stream({"id": "a", "topic": "t", "due": "1", "attempt": "9" * 5_000}), "attempt"),
        (lambda: read_rocketmq(rocketmq({"delayq_id": "a", "delayq_due": "1", "delayq_empty": "[1]"})), "delayq_empty"),
        (lambda: read_kafka("t", None, None), "id"),
        (lambda: read_kafka("t", {"id": "a"}, b""), "due"),
        (
            lambda: read_rabbitmq(SimpleNamespace(headers=None, message_id=None, type=None, content_type=None), b""),
            "message_id",
        ),
    ],
)
def test_a_message_of_others_is_refused(read: Callable[[], Received], field: str) -> None:
    with pytest.raises(InvalidMessage, match="delayq did not send this message") as refused:
        read()
    assert refused.value.field == field


LEASED = Leased(id="a", topic="t", group="g", lease=".1-1.x", due=1, body=b"")


@pytest.mark.parametrize(
    ("body", "text", "value"),
    [
        (b'{"order": 42}', '{"order": 42}', {"order": 42}),
        (b"[1, null, 1.5]", "[1, null, 1.5]", [1, None, 1.5]),
        (b"123456789012345678901234567890", "123456789012345678901234567890", 123456789012345678901234567890),
        (b"order 42", "order 42", InvalidMessage),
        ("ü".encode(), "ü", InvalidMessage),
        (b"", "", InvalidMessage),
        (b"\xff", InvalidMessage, InvalidMessage),
    ],
    ids=repr,
)
def test_the_body_of_a_received_message_is_read_as_text_and_as_json(body: bytes, text: Any, value: Any) -> None:
    reads: list[tuple[Callable[[Any], Any], Any]] = [(lambda one: one.text, text), (lambda one: one.json(), value)]
    for message in (replace(MESSAGE, body=body), replace(LEASED, body=body)):
        for read, expected in reads:
            if expected is InvalidMessage:
                with pytest.raises(InvalidMessage, match=r"body: is (not UTF-8|no JSON .*): read "):
                    read(message)
            else:
                assert read(message) == expected


JSON = "application/json"


@pytest.mark.parametrize(
    ("kind", "body", "sent"),
    [
        (JSON, b'{"price":1.0}', b'"body":{"price":1.0}'),
        (JSON, b"1e3", b'"body":1e3'),
        (JSON, b'{"id":12345678901234567890}', b'"body":{"id":12345678901234567890}'),
        (JSON, b'{"b":1,"1":2,"b":3}', b'"body":{"b":1,"1":2,"b":3}'),
        (JSON, b'["\\u00e9<&>\xe2\x80\xa8"]', b'"body":["\\u00e9<&>\xe2\x80\xa8"]'),
        (JSON, b"null", b'"body":null'),
        ("Application/JSON; charset=utf-8", b"[1.50]", b'"body":[1.50]'),
        (JSON, b'"text"', b'"body":"\\"text\\""'),
        (JSON, b"{broken", b'"body":"{broken"'),
        (JSON, b"", b'"body":""'),
        (JSON, b"\xff", b'"bodyBase64":"/w=="'),
        ("application/json-seq", b"1.0", b'"body":"1.0"'),
        ("text/plain; charset=utf-8", b"\xef\xbb\xbf<b>", b'"body":"\xef\xbb\xbf<b>"'),
        ("text/plain; charset=latin1", b"\xe9", b'"bodyBase64":"6Q=="'),
        ("Application/Octet-Stream", b"text", b'"bodyBase64":"dGV4dA=="'),
        ("", b"1.0", b'"body":"1.0"'),
    ],
)
def test_a_body_that_is_handed_back_keeps_its_bytes_and_its_content_type(kind: str, body: bytes, sent: bytes) -> None:
    message = hand_back_of(read_kafka("t", {"id": "a", "due": "1", "content-type": kind}, body), "", None).message
    stored = json_of(message.body) if isinstance(message.body, Raw) else message.body
    assert (stored.encode() if isinstance(stored, str) else stored) == body
    assert sent in bytes(message_json(message).json)
    is_json_string = b'"contentType":"application/json"' in bytes(hand_back_json(message, {"handBacks": 0}))
    assert is_json_string == (body == b'"text"'), "the API takes another string as text"
