"""What RabbitMQ says of each message, and what is told of it."""

from __future__ import annotations

import pytest

from delayq.targets import OK
from delayq.targets.rabbitmq.frames import content_header
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import Amqp
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.targets.conftest import Rabbits

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]


def test_a_message_becomes_one_of_amqp(rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits) -> None:
    queue = broker.queue()
    body = bytes(range(256)) * 2_000  # several frames
    given = {"tags": "blå", "keys": ("order-42", "user-7"), "ordering_key": "k", "properties": {"größe": "ü", "b": ""}}
    batch = [delivery("a.1", body, attempts=2, topic=queue, **given), delivery("b", "", topic=queue)]
    assert rabbits(rabbitmq.url).send(batch, SEND_SECONDS) == [OK, OK]
    (full, payload), (bare, nothing) = broker.take(queue, 2)
    assert (payload, nothing) == (body, b"")
    assert full.headers == {
        "delayq-due": 20_000,
        "delayq-attempt": 3,
        "delayq-tags": "blå",
        "delayq-keys": "order-42 user-7",
        "delayq-ordering-key": "k",
        "größe": "ü",
        "b": "",
    }
    assert bare.headers == {"delayq-due": 20_000, "delayq-attempt": 1}
    assert (full.message_id, full.type, full.app_id, full.delivery_mode) == ("a.1", queue, "delayq", 2)
    assert (full.content_type, full.timestamp) == ("application/octet-stream", 20)


def test_the_route_says_exchange_and_routing_key(rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits) -> None:
    exchange, queue = broker.exchange(), broker.queue()
    broker.channel.queue_bind(queue, exchange, "later.#")
    target = rabbits(rabbitmq.url, exchange=exchange, routingKey="later.{topic}", propertyPrefix="p-")
    assert target.send([delivery("a", properties={"CC": "x"}), delivery("b")], SEND_SECONDS) == [OK, OK]
    first, second = broker.take(queue, 2)
    assert (first[0].message_id, first[0].headers["p-CC"], second[0].message_id) == ("a", "x", "b")


def test_a_message_that_no_queue_takes_is_a_failure_and_its_neighbours_are_not(
    rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits
) -> None:
    """E6 (RabbitMQ unroutable): Messages are `mandatory`: a returned one has failed, its neighbours have not."""
    queue = broker.queue()
    batch = [delivery(f"m{number}", topic="nowhere" if number % 3 == 1 else queue) for number in range(30)]
    results = rabbits(rabbitmq.url).send(batch, SEND_SECONDS)
    assert [result.outcome for result in results] == ["ok", "unavailable", "ok"] * 10
    assert results[1].reason == "unroutable: 312 NO_ROUTE (exchange '', routing key 'nowhere')"
    assert broker.ids(queue, 20) == [one.id for one in batch if one.topic == queue]


def test_a_queue_that_is_full_takes_no_more_and_says_so(rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits) -> None:
    """E7 (RabbitMQ nack, connection.blocked alarm): A nack is a failure; a blocked connection gets nothing until it
    is free."""
    full = broker.queue(x_max_length=2, x_overflow="reject-publish")
    fine = broker.queue()
    target = rabbits(rabbitmq.url)
    assert outcomes(target.send([delivery("a", topic=full), delivery("b", topic=full)], SEND_SECONDS)) == ["ok", "ok"]
    batch = [delivery("c", topic=fine), delivery("d", topic=full), delivery("e", topic=fine)]
    results = target.send(batch, SEND_SECONDS)
    assert outcomes(results) == ["ok", "unavailable", "ok"]
    assert "nack" in results[1].reason
    assert broker.ids(fine, 2) == ["c", "e"]
    assert broker.ids(full, 2) == ["a", "b"]
    assert outcomes(target.send([delivery("d", topic=full)], SEND_SECONDS)) == ["ok"]


def test_an_exchange_that_is_not_there_fails_its_own_messages_only(
    rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits
) -> None:
    exchange, queue = broker.exchange("fanout"), broker.queue()
    broker.channel.queue_bind(queue, exchange)
    target = rabbits(rabbitmq.url, exchange="{topic}")
    batch = [delivery("a", topic=exchange), delivery("b", topic="gone"), delivery("c", topic=exchange)]
    for _ in range(3):
        results = target.send(batch, SEND_SECONDS)
        assert outcomes(results) == ["ok", "unavailable", "ok"]
        assert "404" in results[1].reason and "no exchange 'gone'" in results[1].reason
        assert broker.ids(queue, 2) == ["a", "c"]
    broker.channel.exchange_delete(exchange)
    assert outcomes(target.send(batch, SEND_SECONDS)) == ["unavailable"] * 3


def test_a_message_that_is_too_large_is_rejected_and_its_neighbours_arrive(
    rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits
) -> None:
    queue = broker.queue()
    rabbitmq.control("eval", "application:set_env(rabbit, max_message_size, 10000).")
    try:
        target = rabbits(rabbitmq.url)
        batch = [delivery(f"m{number}", "x" * (20_000 if number == 5 else 10), topic=queue) for number in range(10)]
        first = target.send(batch, SEND_SECONDS)
        assert first[5].outcome == "rejected"
        assert first[5].reason == "20000 bytes, and the broker takes no more than 10000"
        assert outcomes(first[6:]) == ["unavailable"] * 4
        assert set(outcomes(first[:5])) <= {"ok", "unknown"}
        assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"] * 5 + ["rejected"] + ["ok"] * 4
        assert {one.id for one in batch} - {"m5"} == set(broker.ids(queue, 9))
    finally:
        rabbitmq.control("eval", "application:set_env(rabbit, max_message_size, 134217728).")


def test_whom_the_broker_cannot_bear_is_found_among_its_neighbours(
    rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that delayq sends should make a broker close a channel, so one message is spoilt behind its back."""
    queue = broker.queue()
    target = rabbits(rabbitmq.url)
    ready = target._outgoing

    def spoilt(one: object) -> object:
        found = ready(one)  # type: ignore[arg-type]
        if found.id == "m70":
            found.header = content_header("m70", 1, 1, "text/plain", queue, {}, {"expiration": "no number"})
        return found

    monkeypatch.setattr(target, "_outgoing", spoilt)
    left = [delivery(f"m{number}", topic=queue) for number in range(100)]
    for _ in range(4):
        results = target.send(left, SEND_SECONDS)
        assert set(outcomes(results)) <= {"ok", "unknown", "rejected"}
        rejected = [
            (one.id, result.reason) for one, result in zip(left, results, strict=True) if result.outcome == "rejected"
        ]
        if rejected:
            break
        left = [one for one, result in zip(left, results, strict=True) if result.outcome != "ok"]
    ((id, reason),) = rejected
    assert id == "m70" and "406 PRECONDITION_FAILED" in reason
    assert outcomes(target.send([delivery("after", topic=queue)], SEND_SECONDS)) == ["ok"]
    assert {f"m{number}" for number in range(100)} - {"m70"} <= set(broker.ids(queue, 100))


def test_headers_that_do_not_fit_into_a_frame_are_rejected(rabbitmq: RabbitMQ, broker: Amqp, rabbits: Rabbits) -> None:
    queue = broker.queue()
    rabbitmq.control("eval", "application:set_env(rabbit, frame_max, 8192).")
    try:
        target = rabbits(rabbitmq.url)
        good = delivery("good", topic=queue, properties={"a": "x" * 4_000})
        bad = delivery("bad", topic=queue, properties={"a": "x" * 8_192})
        results = target.send([good, bad, delivery("too", topic=queue)], SEND_SECONDS)
        assert outcomes(results) == ["ok", "rejected", "ok"]
        assert "a frame of this broker has at most 8192" in results[1].reason
    finally:
        rabbitmq.control("eval", "application:set_env(rabbit, frame_max, 131072).")
