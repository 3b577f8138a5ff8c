"""Kafka under the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from delayq.domain.routes import Route
from delayq.received import read_kafka
from testbed.kafka import Kafka
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.targets.adapters import Seen


class KafkaAdapter:
    """Routes to a real Kafka, and what consumers find there."""

    name = "kafka"

    def __init__(self, server: Kafka) -> None:
        self.server = server

    def route(self, topic: str) -> Route:
        """A route for all topics whose names begin so."""
        return Route(name=topic, match=f"{topic}*", target=self.server.url)

    @property
    def port(self) -> int:
        """Where it listens, and says first what it is before it takes messages."""
        return int(self.server.servers.rpartition(":")[2])

    def read(self, topic: str, count: int) -> list[Seen]:
        """So many records of a topic, from its beginning."""
        return [seen(record) for record in consume(self.server.servers, topic, count)]

    def refuse(self, topic: str) -> Mapping[str, Any]:
        """A message that is larger than its topic allows."""
        make_topic(self.server.servers, f"{topic}-small", {"max.message.bytes": "1000"})
        return {"topic": f"{topic}-small", "body": "x" * 2_000}

    def never(self, topic: str) -> list[dict[str, Any]]:
        """Topics that no Kafka can have."""
        return [{"topic": f"{topic}:paid"}, {"topic": topic.ljust(250, "a")}]


def make_topic(servers: str, topic: str, settings: Mapping[str, str], replicas: Sequence[int] = (1,)) -> None:
    """Make a topic of one partition; the first of the replicas leads it."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=dict(settings))
    admin.create_topics([new], operation_timeout=PATIENCE)[topic].result()


def consume(servers: str, topic: str, count: int) -> list[Message]:
    """All records of a topic, as soon as there are so many."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "tests", "enable.auto.commit": False, "log_level": 2}
    )
    records: list[Message] = []

    def enough() -> bool:
        records.extend(one for one in consumer.consume(1_000, 0.2) if one.error() is None)
        return len(records) >= max(count, _size(consumer, partitions))

    try:
        partitions = eventually(lambda: _partitions(consumer, topic), f"there is a topic {topic}")
        consumer.assign(partitions)
        eventually(enough, f"{count} records in {topic}")
        return records
    finally:
        consumer.close()


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    with suppress(KafkaException):  # a broker that was just started
        numbers = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return [TopicPartition(topic, number, 0) for number in numbers]
    return []


def _size(consumer: Consumer, partitions: Sequence[TopicPartition]) -> int:
    """How many records there are now: no transactions are in use, nor is anything deleted."""
    size = 0
    for one in partitions:
        try:
            low, high = consumer.get_watermark_offsets(one, timeout=PATIENCE)
        except KafkaException:  # its leader is just being chosen: nobody knows
            return sys.maxsize
        size += high - low
    return size


def seen(record: Message) -> Seen:
    """A record as the suite sees it."""
    headers = {name: value.decode() for name, value in dict(record.headers() or {}).items() if isinstance(value, bytes)}
    return Seen(
        id=headers["id"],
        topic=headers.get("topic", record.topic()),
        tags=headers.get("tags", ""),
        keys=tuple(headers["keys"].split(" ")) if "keys" in headers else (),
        properties={name[2:]: value for name, value in headers.items() if name.startswith("p:")},
        ordering_key=headers.get("ordering-key", ""),
        payload=record.value() or b"",
        received=read_kafka(record.topic() or "", record.headers(), record.value()),
        due=int(headers["due"]),
        attempt=int(headers["attempt"]),
    )
