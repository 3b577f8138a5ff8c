"""A real worker node that forwards to a real RabbitMQ."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from delayq import Client, InvalidMessage, Message, Settings
from delayq.config import load_settings
from delayq.targets import register_target
from delayq.targets.rabbitmq.target import RabbitMQTarget
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import Amqp
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]


@pytest.fixture(autouse=True)
def known() -> None:
    register_target("rabbitmq", RabbitMQTarget)


def settings_for(redis: ServerUnderTest, broker: RabbitMQ, **options: Any) -> Settings:
    routes = [{"name": "rabbits", "match": "*", "target": broker.url, "options": options, "sendTimeout": 60_000}]
    return load_settings(
        redis_url=redis.url, routes=json.dumps(routes), queues=2, redis_timeout=2_000, retry_base=20, retry_cap=200
    )


def test_messages_arrive_when_they_are_due_and_not_before(
    valkey: ServerUnderTest, rabbitmq: RabbitMQ, broker: Amqp
) -> None:
    queue = broker.queue()
    settings = settings_for(valkey, rabbitmq, routingKey=queue)
    due = time.time_ns() // 1_000_000 + 1_500
    seen: dict[str, int] = {}
    with RunningNode(settings), Client(settings=settings) as client:
        for number in range(50):
            client.schedule(Message(topic="orders", body=str(number), id=f"m{number}", expect_date=due + 10 * number))

        def all_are_there() -> bool:
            while True:
                method, properties, _ = broker.channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return len(seen) == 50
                assert properties.message_id not in seen
                seen[properties.message_id] = time.time_ns() // 1_000_000 - properties.headers["delayq-due"]

        eventually(all_are_there, "all have arrived")
    assert min(seen.values()) >= 0


def test_a_message_that_is_poison_is_buried_and_one_that_is_unroutable_waits_for_its_queue(
    valkey: ServerUnderTest, rabbitmq: RabbitMQ, broker: Amqp
) -> None:
    queue = broker.queue()
    settings = settings_for(valkey, rabbitmq)
    poisoned = Message(topic=queue, id="poisoned", delay_time=0, properties={"CC": "x"})
    with Client(settings=load_settings(redis_url=valkey.url, queues=2)) as client:  # which does not know where it goes
        client.schedule(poisoned)
    with RunningNode(settings), Client(settings=settings) as client:
        client.schedule(Message(topic=queue, id="fine", delay_time=0))
        with pytest.raises(InvalidMessage, match="'CC' cannot be a header"):
            client.schedule(poisoned)
        client.schedule(Message(topic=f"{queue}-later", id="unroutable", delay_time=0, max_attempts=1_000))
        assert broker.ids(queue, 1) == ["fine"]
        (letter,) = eventually(lambda: client.dead_letters().letters, "one is a dead letter")
        assert letter.id == "poisoned" and "'CC' cannot be a header" in letter.reason
        eventually(lambda: (found := client.get("unroutable")) and found.attempts > 0, "it has failed")
        broker.queue(f"{queue}-later")
        assert broker.ids(f"{queue}-later", 1) == ["unroutable"]
