"""Kafka, with confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import BenchmarkError
from benchmarks.brokers import Plain, main
from testbed.kafka import Kafka


class KafkaKit:
    """One broker, with one partition for each topic."""

    messages = 200_000
    quick = 50_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[str]:
        """Start a broker whose topics record the time of each message."""
        with Kafka() as server:
            stamped = {"message.timestamp.type": "LogAppendTime"}
            admin = AdminClient({"bootstrap.servers": _servers(server.url)})
            made = admin.create_topics([NewTopic(topic, 1, 1, config=stamped) for topic in topics])
            for future in made.values():
                future.result(30)
            yield server.url

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Send with an idempotent producer and a report for each message."""
        producer = Producer(
            {"bootstrap.servers": _servers(url), "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        )
        confirmed = 0

        def report(error: Any, message: Any) -> None:
            nonlocal confirmed
            confirmed += error is None

        began = time.perf_counter()
        for one in messages:
            headers: dict[str, str | bytes | None] = {
                "id": one.id, "due": str(one.due), "attempt": str(one.attempt), "content-type": one.content_type,
                "tags": one.tags, "keys": one.key,
            }  # fmt: skip
            while True:
                try:
                    producer.produce(one.topic, one.body, one.key, headers=headers, on_delivery=report)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        producer.flush(60)
        took = time.perf_counter() - began
        if confirmed != len(messages):
            raise BenchmarkError(f"Kafka confirmed {confirmed} of {len(messages)} messages")
        return took


def _servers(url: str) -> str:
    return url.removeprefix("kafka://").rstrip("/")


KIT: Final = KafkaKit()

if __name__ == "__main__":
    main(KIT)
