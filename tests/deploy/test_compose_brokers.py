"""The brokers of docker-compose.yml: their commands, variables and health checks, and what delayq sends to them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # its types keep that back

from delayq.embedded.processes import LOCALHOST
from testbed.errors import ServerMissing
from testbed.rocketmq_remoting import ask
from tests.deploy.stack import Stack

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

#: A request of RocketMQ's remoting protocol.
TOPIC_SETTINGS = 351


@pytest.fixture
def brokers(stack: Stack) -> Iterator[Stack]:
    """The stack; a broker that a test starts ends with it."""
    try:
        yield stack
    finally:
        stack.down("kafka", "rocketmq", "rocketmq-names")
        stack.rabbitmq.stop()


def test_kafka_serves_the_other_containers_and_this_machine(brokers: Stack) -> None:
    try:
        kafka = brokers.up("kafka")
    except ServerMissing as error:
        pytest.skip(str(error))
    brokers.deliver("kafka.orders", "kafka-1")
    for inside in (9092, 9094):
        address = f"{LOCALHOST}:{kafka.ports[inside]}"
        admin = AdminClient({"bootstrap.servers": address})
        seen = admin.list_topics(timeout=30)
        assert [f"{one.host}:{one.port}" for one in seen.brokers.values()] == [address]
        assert "kafka.orders" in seen.topics
    here = ConfigResource(ConfigResource.Type.BROKER, "1")
    (settings,) = admin.describe_configs([here]).values()
    for variable, value in brokers.services["kafka"]["environment"].items():
        setting = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        assert settings.result(30)[setting].value == kafka.local(value), variable
    assert (kafka.place("/var/lib/kafka/data") / "kafka.orders-0").is_dir()


def test_rocketmq_has_its_topic_which_takes_messages_in_order(brokers: Stack) -> None:
    try:
        brokers.up("rocketmq-names")
        brokers.up("rocketmq")
    except ServerMissing as error:
        pytest.skip(str(error))
    brokers.do("rocketmq-topic")
    settings = json.loads(ask(brokers.rocketmq_address, TOPIC_SETTINGS, {"topic": "delayq"}))
    assert settings["attributes"] == {"message.type": "FIFO"}
    brokers.deliver("rocketmq.orders", "rocketmq-1")
    brokers.deliver("rocketmq.orders", "rocketmq-2", orderingKey="42")


def test_rabbitmq_has_its_user_and_its_queue(brokers: Stack) -> None:
    broker = brokers.rabbitmq
    try:
        broker.start()
    except ServerMissing as error:
        pytest.skip(str(error))
    broker.run(*brokers.services["rabbitmq"]["healthcheck"]["test"][1:])
    brokers.do("rabbitmq-queue")
    users = broker.control("list_users", "--formatter", "json")
    assert [one["user"] for one in json.loads(users)] == ["delayq"]
    brokers.deliver("rabbitmq.orders", "rabbitmq-1")
    queues = json.loads(broker.control("list_queues", "name", "durable", "messages", "--formatter", "json"))
    assert queues == [{"name": "delayq", "durable": True, "messages": 1}]
