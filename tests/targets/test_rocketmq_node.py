"""A real worker node that forwards to a real RocketMQ."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from delayq import Client, Message, Settings
from delayq.config import load_settings
from delayq.targets import register_target
from delayq.targets.rocketmq.target import RocketMQTarget
from testbed.rocketmq import RocketMQ
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.targets.adapters.rocketmq import Consumer, seen

SECONDS = 60.0


def settings_for(redis: ServerUnderTest, rocketmq: RocketMQ, topic: str, **given: Any) -> Settings:
    register_target("rocketmq", RocketMQTarget)
    routes = [{"name": "mq", "match": "*", "target": rocketmq.url, "options": {"topic": topic}}]
    values = {"queues": 2, "redis_timeout": 2_000, "retry_base": 20, "retry_cap": 100}
    return load_settings(redis_url=redis.url, routes=json.dumps(routes), **(values | given))


def test_messages_arrive_when_they_are_due_with_tags_keys_and_body(valkey: ServerUnderTest, rocketmq: RocketMQ) -> None:
    topic = f"orders-{uuid.uuid4().hex}"
    rocketmq.create_topic(topic, fifo=True)
    settings = settings_for(valkey, rocketmq, topic)
    due = int(time.time() * 1000) + 1_500
    with Consumer(rocketmq, topic, "unpaid") as consumer, RunningNode(settings), Client(settings=settings) as client:
        ids = [
            client.schedule(
                Message(
                    topic="orders.check",
                    tags="unpaid",
                    keys=(f"order-{number}", "shop"),
                    body={"order": number},
                    properties={"region": "eu"},
                    ordering_key="shop 7",
                    expect_date=due + number,
                )
            ).id
            for number in range(10)
        ]
        found = consumer.read(10, SECONDS)
        eventually(
            lambda: [one and one.state for one in client.get_many(ids)] == ["delivered"] * 10, "all are forwarded"
        )
    messages = [seen(one, rocketmq) for one in found]
    assert [one.id for one in messages] == ids
    assert [one.due for one in messages] == [due + number for number in range(10)]
    for number, (one, message) in enumerate(zip(found, messages, strict=True)):
        assert one.born_timestamp >= due + number  # not early
        assert (message.topic, message.tags, message.keys) == ("orders.check", "unpaid", (f"order-{number}", "shop"))
        assert (message.payload, message.properties) == (b'{"order":%d}' % number, {"region": "eu"})
        assert message.ordering_key == "shop 7"
