"""What a real RocketMQ gets of a message, and what its troubles are for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from delayq.domain.routes import Route
from delayq.targets.rocketmq.rules import topic_refusal
from delayq.targets.rocketmq.target import RocketMQTarget
from testbed.rocketmq import RocketMQ
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.support.waiting import eventually
from tests.targets.adapters import Seen
from tests.targets.adapters.rocketmq import Consumer, RocketMQAdapter, seen
from tests.targets.conftest import Closing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rocketmq")]

#: A time-out that is to pass; a busy machine needs some of it to hand the message over.
SHORT = 5.0

Open = Callable[..., RocketMQTarget]


@pytest.fixture
def opened(rocketmq: RocketMQ, closing: Closing) -> Open:
    """Opens a target with these options; it is closed at the end."""

    def open(**options: Any) -> RocketMQTarget:
        return closing(RocketMQTarget(rocketmq.url, Route(name="r", target=rocketmq.url, options=options), ""))

    return open


@pytest.fixture
def topic(rocketmq: RocketMQ) -> str:
    """One of ordinary messages that no other test uses."""
    name = f"orders-{uuid.uuid4().hex}"
    rocketmq.create_topic(name)
    return name


@pytest.fixture
def groups(rocketmq: RocketMQ) -> str:
    """One of message groups."""
    name = f"orders-{uuid.uuid4().hex}"
    rocketmq.create_topic(name, fifo=True)
    return name


def send(target: RocketMQTarget, *batch: Any) -> list[str]:
    return outcomes(target.send(batch, SEND_SECONDS))


def read(server: RocketMQ, topic: str, count: int) -> list[Seen]:
    return RocketMQAdapter(server).read(topic, count)


def test_a_consumer_of_a_tag_finds_it_and_one_of_another_tag_does_not(
    rocketmq: RocketMQ, opened: Open, topic: str
) -> None:
    with Consumer(rocketmq, topic, "paid") as paid, Consumer(rocketmq, topic, "unpaid || late") as others:
        assert (
            send(
                opened(),
                delivery("a", topic=topic, tags="paid"),
                delivery("b", topic=topic, tags="unpaid"),
                delivery("c", topic=topic),
                delivery("d", topic=topic, tags="paid"),
                delivery("e", topic=topic, tags="late"),
            )
            == ["ok"] * 5
        )
        assert {seen(one, rocketmq).id for one in paid.read(2)} == {"a", "d"}
        assert {seen(one, rocketmq).id for one in others.read(2)} == {"b", "e"}


#: The fields of messages that RocketMQ refuses, and a part of its reason.
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"tags": "a|b"}, "ILLEGAL_MESSAGE_TAG: tag cannot contain '|'"),
    ({"tags": "  "}, "ILLEGAL_MESSAGE_TAG: tag cannot be the char sequence of whitespace"),
    ({"ordering_key": "k" * 65}, "ILLEGAL_MESSAGE_GROUP: message group exceed the max size 64"),
    ({"properties": {"KEYS": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY: property is used by system: KEYS"),
    ({"properties": {"lines": "a\nb"}}, "the value of property cannot contain control character"),
    ({"properties": {f"p{number}": "x" * 8_000 for number in range(3)}}, "MESSAGE_PROPERTIES_TOO_LARGE: "),
    ({"body": b""}, "no messages without a body"),
    ({"topic": "t" * 200}, "ILLEGAL_TOPIC: "),
)


def test_what_rocketmq_refuses_is_rejected_with_its_words_and_its_neighbours_are_sent(
    rocketmq: RocketMQ, opened: Open, groups: str
) -> None:
    wrong = [delivery(f"wrong-{n}", **({"topic": groups} | fields)) for n, (fields, _) in enumerate(REFUSED)]
    batch = [delivery("a", topic=groups), *wrong, delivery("b", topic=groups)]
    results = opened().send(batch, SEND_SECONDS)
    assert outcomes(results) == ["ok", *["rejected"] * len(wrong), "ok"], results
    for result, (_, reason) in zip(results[1:-1], REFUSED, strict=True):
        assert reason in result.reason
    assert {one.id for one in read(rocketmq, groups, 2)} == {"a", "b"}


def test_a_topic_that_there_is_not_takes_nothing_until_it_is_made(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    target, missing = opened(), f"missing-{uuid.uuid4().hex}"
    longest = "a" * 127  # the check of a schedule and RocketMQ agree on it
    assert not topic_refusal(longest) and topic_refusal(longest + "a")
    batch = [delivery("a", topic=missing), delivery("b", topic=topic), delivery("c", topic=longest)]
    results = target.send(batch, SEND_SECONDS)
    assert outcomes(results) == ["unavailable", "ok", "unavailable"]
    assert results[0].reason.startswith("TOPIC_NOT_FOUND: ") and missing in results[0].reason
    rocketmq.create_topic(missing)
    eventually(lambda: send(target, delivery("a", topic=missing)) == ["ok"], "the proxy has heard of it")
