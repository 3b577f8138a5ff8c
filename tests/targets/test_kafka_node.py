"""A real worker node that forwards to a real Kafka."""

from __future__ import annotations

import json
from typing import Any

from delayq import Client, Message, Settings
from delayq.config import load_settings
from delayq.targets import register_target
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import consume

SECONDS = 60.0


def settings_for(server: ServerUnderTest, kafka: Kafka, **given: Any) -> Settings:
    register_target("kafka", KafkaTarget)
    routes = [{"name": "kafka", "match": "orders.*", "target": kafka.url}]
    values = {"queues": 2, "redis_timeout": 2_000, "retry_base": 20, "retry_cap": 200, "send_timeout": 60_000}
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
