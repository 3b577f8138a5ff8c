"""RabbitMQ as tests look at it: a channel of their own, exchanges and queues, and what lies in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika

from testbed.rabbitmq import RabbitMQ
from tests.support.waiting import eventually

Taken = tuple[pika.BasicProperties, bytes]


class Amqp:
    """A connection beside the one under test."""

    def __init__(self, server: RabbitMQ) -> None:
        self.server = server
        parameters = pika.URLParameters(server.amqp_url)
        # pika answers heartbeats only inside its own calls, and a test on a busy machine may take longer than the broker waits.
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def queue(self, name: str = "", **arguments: Any) -> str:
        """A durable queue; its name."""
        name = name or f"q-{uuid.uuid4().hex}"
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=given or None)
        return name

    def exchange(self, kind: str = "topic", **options: Any) -> str:
        """A durable exchange; its name."""
        name = f"x-{uuid.uuid4().hex}"
        self.channel.exchange_declare(name, kind, durable=True, **options)
        return name

    def publish(self, queue: str, body: bytes = b"x", *, exchange: str = "", **properties: Any) -> None:
        """Publish a message and wait for its confirm."""
        self.channel.basic_publish(exchange, queue, body, self.properties(**properties))

    @staticmethod
    def properties(**given: Any) -> pika.BasicProperties:
        """Of a message that outlives the broker."""
        return pika.BasicProperties(delivery_mode=2, **given)

    def count(self, queue: str) -> int:
        """How many messages are ready in a queue."""
        found: int = self.channel.queue_declare(queue, passive=True).method.message_count
        return found

    def take(self, queue: str, count: int) -> list[Taken]:
        """So many messages of a queue, or more."""
        found: list[Taken] = []

        def enough() -> bool:
            while True:
                method, properties, body = self.channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return len(found) >= count
                found.append((properties, body))

        eventually(enough, f"{count} messages in {queue}")
        return found

    def ids(self, queue: str, count: int) -> list[str]:
        """The ids of so many messages of a queue."""
        return [properties.message_id for properties, _ in self.take(queue, count)]


@contextmanager
def amqp(server: RabbitMQ) -> Iterator[Amqp]:
    """A connection for the length of a block."""
    one = Amqp(server)
    try:
        yield one
    finally:
        if one.connection.is_open:
            one.connection.close()
