"""What a real RocketMQ gets of a message, and what its troubles are for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from delayq.routes import Route
from delayq.targets.rocketmq.rules import topic_refusal
from delayq.targets.rocketmq.target import RocketMQTarget
from testbed.rocketmq import RocketMQ
from tests.support.deliveries import delivery, outcomes
from tests.support.waiting import eventually
from tests.targets.adapters import Seen
from tests.targets.adapters.rocketmq import Consumer, RocketMQAdapter, seen
from tests.targets.conftest import Closing

pytestmark = pytest.mark.long

SECONDS = 60.0

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
    return outcomes(target.send(batch, SECONDS))


def read(server: RocketMQ, topic: str, count: int) -> list[Seen]:
    return RocketMQAdapter(server).read(topic, count, SECONDS)


def test_a_topic_whose_name_is_too_long_is_refused_by_the_target_as_by_its_check(opened: Open) -> None:
    assert not topic_refusal("a" * 127) and topic_refusal("a" * 128)
    assert send(opened(), delivery("a", topic="a" * 127)) == ["unavailable"]  # there is no such topic
    assert send(opened(), delivery("a", topic="a" * 128)) == ["rejected"]


@pytest.mark.parametrize("body", [b"\0", bytes(range(256)), "text ü".encode(), b"x" * 1_000_000])
def test_every_field_arrives(rocketmq: RocketMQ, opened: Open, groups: str, body: bytes) -> None:
    one = delivery(
        "order-42:a",
        body,
        2,
        topic=groups,
        tags="bezahlt ü",
        keys=("zwei", "eins"),
        ordering_key="kunde 7",
        properties={"region": "eu", "ü": "ß \u2028", "leer": "", "delayq": "x", "a b": "c=d"},
    )
    assert send(opened(), one) == ["ok"]
    assert read(rocketmq, groups, 1) == [
        Seen(
            id="order-42:a",
            topic=groups,
            tags="bezahlt ü",
            keys=("zwei", "eins"),
            ordering_key="kunde 7",
            properties={"region": "eu", "ü": "ß \u2028", "leer": "", "delayq": "x", "a b": "c=d"},
            payload=body,
            due=20_000,
            attempt=3,
        )
    ]


def test_messages_of_one_request_keep_what_is_theirs(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    batch = [
        delivery(
            f"order-{number}",
            bytes([number]) * 10,
            topic=topic,
            tags=f"tag{number}",
            keys=(f"{topic}-{number}",),
            properties={"number": str(number)},
        )
        for number in range(3)
    ]
    assert send(opened(), *batch) == ["ok"] * 3
    assert sorted(read(rocketmq, topic, 3), key=lambda one: one.id) == [
        Seen(
            id=f"order-{number}",
            topic=topic,
            tags=f"tag{number}",
            keys=(f"{topic}-{number}",),
            ordering_key="",
            properties={"number": str(number)},
            payload=bytes([number]) * 10,
            due=20_000,
            attempt=1,
        )
        for number in range(3)
    ]


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
        assert {seen(one, rocketmq).id for one in paid.read(2, SECONDS)} == {"a", "d"}
        assert {seen(one, rocketmq).id for one in others.read(2, SECONDS)} == {"b", "e"}


def test_a_search_for_a_key_finds_it(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    batch = [delivery(id, id.encode() * 3, topic=topic, keys=("shared", f"of-{id}")) for id in ("first", "second")]
    assert send(opened(), *batch) == ["ok", "ok"]
    found = eventually(lambda: rocketmq.find_by_key(topic, "of-second"), "it is indexed")
    assert b"secondsecondsecond" in found and b"firstfirstfirst" not in found
    both = eventually(lambda: rocketmq.find_by_key(topic, "shared"), "both are indexed")
    assert b"secondsecondsecond" in both and b"firstfirstfirst" in both
    assert rocketmq.find_by_key(topic, "of-nobody") == b""


def test_within_a_message_group_the_order_stays(rocketmq: RocketMQ, opened: Open, groups: str) -> None:
    target = opened()
    for number in range(20):
        batch = [delivery(f"{key}-{number:02}", topic=groups, ordering_key=key) for key in "abc"]
        assert send(target, *batch) == ["ok"] * 3
    found = read(rocketmq, groups, 60)
    for key in "abc":
        assert [one.id for one in found if one.ordering_key == key] == [f"{key}-{number:02}" for number in range(20)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tags": "a|b"}, "ILLEGAL_MESSAGE_TAG: tag cannot contain '|'"),
        ({"tags": "  "}, "ILLEGAL_MESSAGE_TAG: tag cannot be the char sequence of whitespace"),
        ({"ordering_key": "k" * 65}, "ILLEGAL_MESSAGE_GROUP: message group exceed the max size 64"),
        ({"properties": {"KEYS": "x"}}, "ILLEGAL_MESSAGE_PROPERTY_KEY: property is used by system: KEYS"),
        ({"properties": {"lines": "a\nb"}}, "the value of property cannot contain control character"),
        ({"properties": {f"p{number}": "x" * 8_000 for number in range(3)}}, "MESSAGE_PROPERTIES_TOO_LARGE: "),
        ({"body": b""}, "no messages without a body"),
        ({"topic": "t" * 200}, "ILLEGAL_TOPIC: "),
    ],
    ids=["two tags", "blank tag", "long key", "reserved", "line break", "large", "no body", "long topic"],
)
def test_what_rocketmq_refuses_is_rejected_with_its_words_and_its_neighbours_are_sent(
    rocketmq: RocketMQ, opened: Open, groups: str, wrong: dict[str, Any], reason: str
) -> None:
    batch = [delivery("a", topic=groups), delivery("wrong", **({"topic": groups} | wrong)), delivery("b", topic=groups)]
    results = opened().send(batch, SECONDS)
    assert outcomes(results) == ["ok", "rejected", "ok"], results
    assert reason in results[1].reason
    assert {one.id for one in read(rocketmq, groups, 2)} == {"a", "b"}


def test_a_topic_that_there_is_not_takes_nothing_until_it_is_made(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    target, missing = opened(), f"missing-{uuid.uuid4().hex}"
    results = target.send([delivery("a", topic=missing), delivery("b", topic=topic)], SECONDS)
    assert outcomes(results) == ["unavailable", "ok"]
    assert results[0].reason.startswith("TOPIC_NOT_FOUND: ") and missing in results[0].reason
    rocketmq.create_topic(missing)
    eventually(lambda: send(target, delivery("a", topic=missing)) == ["ok"], "the proxy has heard of it")


def test_an_ordering_key_for_a_topic_without_groups_waits(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    (result,) = opened().send([delivery("a", topic=topic, ordering_key="k")], SECONDS)
    assert result.outcome == "unavailable" and "takes no message groups" in result.reason


def test_a_broker_that_stands_still_leaves_open_what_it_took(rocketmq: RocketMQ, opened: Open, topic: str) -> None:
    target = opened()
    assert send(target, delivery("before", topic=topic)) == ["ok"]
    rocketmq.pause()
    try:
        results = target.send([delivery("during", topic=topic)], 1.0)
    finally:
        rocketmq.resume()
    assert outcomes(results) == ["unknown"]
    assert "no answer in time" in results[0].reason
    eventually(lambda: send(target, delivery("after", topic=topic)) == ["ok"], "it goes on")
    ids = {one.id for one in read(rocketmq, topic, 2)}
    assert {"before", "after"} <= ids <= {"before", "during", "after"}


def test_a_proxy_that_was_killed_takes_nothing_and_goes_on_when_it_is_back() -> None:
    with RocketMQ() as server:
        server.create_topic("orders")
        target = RocketMQTarget(server.url, Route(name="r", target=server.url), "")
        assert send(target, delivery("before")) == ["ok"]
        server.kill()
        # What is sent before the end of the connection is noticed may have arrived, for all that is known.
        eventually(lambda: send(target, delivery("during")) == ["unavailable"], "it is known to be away")
        server.start()
        eventually(lambda: send(target, delivery("after")) == ["ok"], "it goes on")
        target.close()
        # What is flushed by and by may be gone with the process, but not what came after it.
        assert "after" in {one.id for one in read(server, "orders", 1)}
