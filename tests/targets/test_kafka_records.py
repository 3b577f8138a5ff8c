"""What a real Kafka gets of a message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from delayq.routes import Route
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.support.deliveries import delivery, outcomes
from tests.targets.adapters import Seen
from tests.targets.adapters.kafka import KafkaAdapter, consume

SECONDS = 30.0


@pytest.fixture
def target(kafka: Kafka) -> Iterator[KafkaTarget]:
    opened = KafkaTarget(kafka.url, Route(name="kafka", target=kafka.url), "")
    yield opened
    opened.close()


def test_all_fields_are_carried_over(kafka: Kafka, target: KafkaTarget, topic: str) -> None:
    body = bytes(range(256))
    one = delivery(
        "full",
        body,
        2,
        topic=topic,
        tags="paid grün",
        keys=("k1", "k2"),
        properties={"id": "not the id", "ü": ""},
        ordering_key="customer 7",
    )
    assert outcomes(target.send([one], SECONDS)) == ["ok"]
    (record,) = consume(kafka.servers, topic, 1, SECONDS)
    assert record.headers() == [
        ("id", b"full"),
        ("due", b"%d" % one.due),
        ("attempt", b"3"),
        ("content-type", b"application/octet-stream"),
        ("tags", "paid grün".encode()),
        ("keys", b"k1 k2"),
        ("ordering-key", b"customer 7"),
        ("p:id", b"not the id"),
        ("p:ü", b""),
    ]
    assert (record.key(), record.value()) == (b"customer 7", body)
    assert KafkaAdapter(kafka).read(topic, 1, SECONDS) == [
        Seen("full", topic, "paid grün", ("k1", "k2"), {"id": "not the id", "ü": ""}, "customer 7", body, one.due, 3)
    ]


def test_the_key_is_the_ordering_key_or_the_first_business_key(kafka: Kafka, target: KafkaTarget, topic: str) -> None:
    batch = [
        delivery("a", topic=topic, keys=("k1", "k2"), ordering_key="o"),
        delivery("b", topic=topic, keys=("k1", "k2")),
        delivery("c", b"", topic=topic),
    ]
    assert outcomes(target.send(batch, SECONDS)) == ["ok"] * 3
    records = consume(kafka.servers, topic, 3, SECONDS)
    assert [(record.key(), record.value()) for record in records] == [(b"o", b"x"), (b"k1", b"x"), (None, b"")]


def test_a_topic_of_another_name_is_told_of(kafka: Kafka, topic: str) -> None:
    url = f"{kafka.url}/all.{topic}"
    target = KafkaTarget(url, Route(name="kafka", target=url), "")
    assert outcomes(target.send([delivery("a", topic="a:b"), delivery("b", topic="c")], SECONDS)) == ["ok"] * 2
    target.close()
    assert [one.topic for one in KafkaAdapter(kafka).read(f"all.{topic}", 2, SECONDS)] == ["a:b", "c"]


def test_several_partitions_each_keep_the_order_of_their_keys(kafka: Kafka, target: KafkaTarget, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, 4, 1)], operation_timeout=30)[topic].result(SECONDS)
    for number in range(20):
        batch = [delivery(f"{key}-{number}", topic=topic, ordering_key=key) for key in "abcdefgh"]
        assert outcomes(target.send(batch, SECONDS)) == ["ok"] * 8
    records = consume(kafka.servers, topic, 160, SECONDS)
    for key in "abcdefgh":
        mine = [record for record in records if record.key() == key.encode()]
        assert len({record.partition() for record in mine}) == 1
        assert [dict(record.headers() or {})["id"] for record in mine] == [f"{key}-{n}".encode() for n in range(20)]
    assert len({record.partition() for record in records}) > 1
