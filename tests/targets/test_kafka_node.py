"""A real worker node that forwards to a real Kafka."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from delayq import Client, Message, Settings
from delayq.config import load_settings
from delayq.targets import register_target
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import KafkaAdapter, consume

SECONDS = 60.0


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"orders.{uuid.uuid4().hex}"


def settings_for(server: ServerUnderTest, kafka: Kafka, **given: Any) -> Settings:
    register_target("kafka", KafkaTarget)
    routes = [{"name": "kafka", "match": "orders.*", "target": kafka.url}]
    values = {"queues": 2, "redis_timeout": 2_000, "retry_base": 20, "retry_cap": 200, "send_timeout": 4_000}
    return load_settings(redis_url=server.url, routes=json.dumps(routes), **(values | given))


def test_a_message_arrives_at_its_due_and_not_before(valkey: ServerUnderTest, kafka: Kafka, topic: str) -> None:
    settings = settings_for(valkey, kafka)
    with RunningNode(settings), Client(settings=settings) as client:
        for number in range(20):
            client.schedule(
                Message(topic=topic, body={"order": number}, id=str(number), keys=("k",), delay_time=500 + 50 * number)
            )
        records = consume(kafka.servers, topic, 20, SECONDS)
        eventually(
            lambda: all(found and found.state == "delivered" for found in client.get_many([*map(str, range(20))])),
            "all count as forwarded",
        )
    assert sorted(record.value() or b"" for record in records) == sorted(b'{"order":%d}' % one for one in range(20))
    for record in records:
        # The record's own time is when it was handed to the producer, by the clock of this machine, as the due is.
        assert record.timestamp()[1] >= int(dict(record.headers() or {})["due"] or 0)


def test_a_broker_that_goes_and_comes_back_costs_no_message_and_no_order(
    valkey: ServerUnderTest, kafka: Kafka, topic: str
) -> None:
    settings = settings_for(valkey, kafka, send_timeout=3_000)
    ids = [f"{key}-{number}" for number in range(10) for key in "abc"]
    with RunningNode(settings), Client(settings=settings) as client:
        client.schedule(Message(topic=topic, id="first", delay_time=0))
        eventually(lambda: (found := client.get("first")) and found.state == "delivered", "the route works", SECONDS)
        kafka.kill()
        try:
            for due, id in enumerate(ids, start=1_000):
                client.schedule(Message(topic=topic, id=id, ordering_key=id[0], expect_date=due))
            eventually(lambda: sum(queue.parked for queue in client.stats()), "the circuit is open", SECONDS)
        finally:
            kafka.start()
        eventually(
            lambda: sum(queue.scheduled + queue.parked for queue in client.stats()) == 0, "all are settled", SECONDS
        )
        assert client.dead_letters().letters == []
    arrived = [one.id for one in KafkaAdapter(kafka).read(topic, 31, SECONDS)]
    for key in "abc":
        mine = [int(id.partition(".")[0][2:]) for id in arrived if id.startswith(f"{key}-")]
        assert sorted(set(mine)) == [*range(10)]
        assert mine == sorted(mine)


def test_a_refused_message_is_a_dead_letter_with_the_words_of_the_broker(
    valkey: ServerUnderTest, kafka: Kafka, topic: str
) -> None:
    small = KafkaAdapter(kafka).refuse(topic)["topic"]
    settings = settings_for(valkey, kafka)
    with RunningNode(settings), Client(settings=settings) as client:
        for id, body in (("a", "x"), ("b", "x" * 2_000), ("c", "x")):
            client.schedule(Message(topic=small, id=id, body=body, delay_time=50))
        (letter,) = eventually(lambda: client.dead_letters().letters, "one is a dead letter", SECONDS)
        assert sorted(one.id for one in KafkaAdapter(kafka).read(small, 2, SECONDS)) == ["a", "c"]
    assert (letter.id, letter.reason) == ("b", "Broker: Message size too large (MSG_SIZE_TOO_LARGE)")
