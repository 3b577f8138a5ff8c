"""How a message of RabbitMQ is read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pika
import pytest

from delayq.base.errors import InvalidMessage
from delayq.bridges.amqp_messages import Reader
from delayq.domain.message import Limits, Message

NOW = 1_796_119_200_000


class Told(list[str]):
    """What was told."""


@pytest.fixture
def told() -> Told:
    return Told()


def read(
    told: Told, *, topic: str = "{routing_key}", by_timestamp: bool = False, body: bytes = b"x", **fields: Any
) -> Message:
    method = pika.spec.Basic.Deliver(exchange="shop", routing_key="orders.unpaid")
    reader = Reader(topic, Limits(), told.append, by_timestamp=by_timestamp)
    message = reader.read(method, pika.BasicProperties(**fields), body, NOW)
    message.validate(Limits(), NOW)
    return message


def test_a_message_becomes_one_of_delayq(told: Told) -> None:
    headers = {
        "x-delay": 5_000, "delayq-tags": "t", "delayq-keys": "order-42 user-7", "delayq-ordering-key": "k",
        "delayq-due": 17, "delayq-attempt": 3, "text": "größe", "number": 7, "yes": True, "price": Decimal("1.5"),
    }  # fmt: skip
    message = read(told, headers=headers, message_id="unpaid-42", body=b"\0\xff")
    assert message == Message(
        topic="orders.unpaid",
        body=b"\0\xff",
        id="unpaid-42",
        delay_time=5_000,
        tags="t",
        keys=("order-42", "user-7"),
        ordering_key="k",
        properties={"text": "größe", "number": "7", "yes": "true", "price": "1.5"},
    )
    assert told == []


def test_the_delay_is_a_number_of_ms_however_it_is_written(told: Told) -> None:
    for value, delay in (
        (0, 0), (-5_000, 0), (3, 3), ("1500", 1_500), (" 20 ", 20), ("-7", 0), (2.0, 2), (Decimal(9), 9)
    ):  # fmt: skip
        assert read(told, headers={"x-delay": value}).delay_time == delay
    for headers in (None, {}, {"other": 1}):
        assert read(told, headers=headers).delay_time == 0


@pytest.mark.parametrize("value", ["soon", "1e3", "", "٣", True, None, [1], {"a": 1}, b"\xff", float("inf")])
def test_a_delay_that_is_no_number_is_refused(told: Told, value: Any) -> None:
    with pytest.raises(InvalidMessage, match="x-delay: must be a number of ms"):
        read(told, headers={"x-delay": value})


def test_a_delay_beyond_the_horizon_is_refused(told: Told) -> None:
    with pytest.raises(InvalidMessage, match="delayTime"):
        read(told, headers={"x-delay": 10**15})


def test_the_properties_of_amqp_are_carried_along(told: Told) -> None:
    message = read(
        told,
        content_type="application/json",
        correlation_id="c",
        reply_to="answers",
        priority=3,
        type="order",
        app_id="shop",
        content_encoding="gzip",
        expiration="60000",
        delivery_mode=1,
        user_id="guest",
    )
    assert message.properties == {
        "amqp-content-type": "application/json",
        "amqp-correlation-id": "c",
        "amqp-reply-to": "answers",
        "amqp-priority": "3",
        "amqp-type": "order",
        "amqp-app-id": "shop",
        "amqp-content-encoding": "gzip",
        "amqp-expiration": "60000",
    }


def test_what_cannot_be_carried_is_left_out_and_told_once(told: Told) -> None:
    method = pika.spec.Basic.Deliver(exchange="shop", routing_key="orders")
    reader = Reader("{routing_key}", Limits(), told.append)
    headers = {"x-death": [{"count": 1}], "lines": "a\nb", "long": "x" * 9_000, "bytes": b"\xff", "fine": "f"}
    for _ in range(3):
        message = reader.read(method, pika.BasicProperties(headers=headers), b"", NOW)
        assert message.properties == {"fine": "f"}
    assert told == [
        "the header 'x-death' is omitted where it is neither text nor a number",
        "the header 'lines' is omitted where its name or its value is too long, or has control characters",
        "the header 'long' is omitted where its name or its value is too long, or has control characters",
        "the header 'bytes' is omitted where it is neither text nor a number",
    ]


def test_an_id_that_is_none_for_delayq_gives_the_same_one_each_time(told: Told) -> None:
    first, second = (read(told, message_id="order/42 ü") for _ in range(2))
    assert first.id == second.id and first.id is not None and first.id.startswith("amqp-")
    assert first.properties == {"amqp-message-id": "order/42 ü"}
    assert read(told, message_id="order/43 ü").id != first.id


def test_without_an_id_each_delivery_has_its_own(told: Told) -> None:
    assert read(told).id != read(told).id


def test_keys_may_be_a_list(told: Told) -> None:
    assert read(told, headers={"delayq-keys": ["a", "b"]}).keys == ("a", "b")


@pytest.mark.parametrize(
    "headers", [{"delayq-keys": 7}, {"delayq-keys": [7]}, {"delayq-tags": 7}, {"delayq-keys": "a a"}]
)
def test_fields_that_are_wrong_are_refused(told: Told, headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match=r"keys|tags"):
        read(told, headers=headers)


def test_the_topic_is_made_of_exchange_and_routing_key(told: Told) -> None:
    assert read(told, topic="{exchange}.{routing_key}.later").topic == "shop.orders.unpaid.later"
    with pytest.raises(ValueError, match=r"not of \{queue\}"):
        read(told, topic="{queue}")


@pytest.mark.parametrize(
    ("fields", "delay"),
    [
        ({}, 60_000),
        ({"timestamp": NOW // 1_000}, 60_000),  # whole seconds: it may be a moment ago, and never early
        ({"timestamp": NOW // 1_000 - 10}, 51_000),
        ({"timestamp": NOW // 1_000 - 600}, 0),
        ({"timestamp": NOW // 1_000 + 600}, 60_000),
        ({"headers": {"timestamp_in_ms": NOW - 12_345}, "timestamp": NOW // 1_000}, 47_655),
    ],
)
def test_the_delay_may_count_from_the_timestamp(told: Told, fields: dict[str, Any], delay: int) -> None:
    fields = fields | {"headers": fields.get("headers", {}) | {"x-delay": 60_000}}
    assert read(told, by_timestamp=True, **fields).delay_time == delay
    assert read(told, **fields).delay_time == 60_000
