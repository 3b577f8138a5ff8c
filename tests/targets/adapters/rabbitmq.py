"""RabbitMQ: each topic has an exchange of its name, and a queue behind it that takes everything."""

from __future__ import annotations

from typing import Any

import pika

from delayq.domain.routes import Route
from delayq.received import read_rabbitmq
from delayq.targets.rabbitmq.passthrough import HANDED_BACK
from testbed.rabbitmq import RabbitMQ
from tests.support.waiting import eventually
from tests.targets.adapters import Seen


class RabbitMQAdapter:
    """The queues of a broker. What is read is gone."""

    is_emptied = True

    def __init__(self, server: RabbitMQ) -> None:
        self.server = server
        self._parameters = pika.URLParameters(server.amqp_url)

    def route(self, topic: str) -> Route:
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            channel.exchange_declare(topic, "fanout", durable=True)
            channel.queue_declare(topic, durable=True)
            channel.queue_bind(topic, topic)
        return Route(name=topic, match=f"{topic}*", target=self.server.url, options={"exchange": topic})

    @property
    def port(self) -> int:
        """Where it listens, and says first what it is before it takes messages."""
        return self.server.port

    def read(self, topic: str, count: int) -> list[Seen]:
        found: list[Seen] = []
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()

            def enough() -> bool:
                while True:
                    method, properties, body = channel.basic_get(topic, auto_ack=True)
                    if method is None:
                        return len(found) >= count
                    found.append(seen(properties, body))

            eventually(enough, f"{count} messages in {topic}")
        return found

    def never(self, topic: str) -> list[dict[str, Any]]:
        """Headers that the broker or delayq has another use for, and what AMQP cannot write down."""
        return [
            {"properties": {"CC": topic}},
            {"properties": {"BCC": topic}},
            {"properties": {"delayq-due": "x"}},
            {"properties": {"amqp-priority": "high"}},
            {"properties": {"amqp-type": "x" * 256}},
            {"properties": {"n" * 256: "x"}},
        ]


def seen(properties: pika.BasicProperties, body: bytes) -> Seen:
    """A message as its consumer has it."""
    headers = properties.headers
    return Seen(
        id=properties.message_id,
        topic=properties.type,
        tags=headers.get("delayq-tags", ""),
        keys=tuple(headers.get("delayq-keys", "").split()),
        properties={
            name: value for name, value in headers.items() if not name.startswith("delayq-") or name in HANDED_BACK
        },
        ordering_key=headers.get("delayq-ordering-key", ""),
        payload=body,
        due=headers["delayq-due"],
        attempt=headers["delayq-attempt"],
        received=read_rabbitmq(properties, body),
    )
