"""RabbitMQ, with pika."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import pika
from pika.adapters.select_connection import SelectConnection

from benchmarks import BenchmarkError
from benchmarks.brokers import Plain, main
from testbed.rabbitmq import RabbitMQ

WINDOW: Final = 1_000
WITHIN: Final = 300.0


class RabbitMQKit:
    """One broker, with one durable queue for each topic."""

    messages = 50_000
    quick = 20_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[str]:
        """Start a broker with queues behind the default exchange."""
        with RabbitMQ() as server:
            with closing(pika.BlockingConnection(pika.URLParameters(server.amqp_url))) as connection:
                channel = connection.channel()
                for topic in topics:
                    channel.queue_declare(topic, durable=True)
            yield server.url

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Send persistent messages on a channel with confirms; as many are under way as delayq sends at once."""
        return _Publishing(url, messages).run()


class _Publishing:
    """One run of the asynchronous client."""

    def __init__(self, url: str, messages: Sequence[Plain]) -> None:
        self._messages = messages
        self._sent = 0
        self._open: dict[int, None] = {}  # delivery tags, in order
        self._began = self._ended = 0.0
        self._channel: Any = None
        self._wrong = ""
        self._connection: Any = SelectConnection(pika.URLParameters(_amqp(url)), on_open_callback=self._opened)

    def run(self) -> float:
        """Send everything; return the seconds."""
        self._connection.ioloop.call_later(WITHIN, lambda: self._end("it took too long"))
        self._connection.ioloop.start()
        if self._wrong:
            raise BenchmarkError(
                f"RabbitMQ confirmed {self._sent - len(self._open)} of {len(self._messages)}: {self._wrong}"
            )
        return self._ended - self._began

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._prepare)

    def _prepare(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_return_callback(lambda *_: self._end("a message was returned"))
        channel.confirm_delivery(ack_nack_callback=self._confirmed, callback=self._begin)

    def _begin(self, _: Any) -> None:
        self._began = time.perf_counter()
        self._publish()

    def _publish(self) -> None:
        while self._sent < len(self._messages) and len(self._open) < WINDOW:
            one = self._messages[self._sent]
            properties = pika.BasicProperties(
                content_type=one.content_type,
                delivery_mode=2,
                message_id=one.id,
                timestamp=one.due // 1000,
                type=one.topic,
                app_id="shop",
                headers={"due": one.due, "attempt": one.attempt, "tags": one.tags, "keys": one.key},
            )
            self._channel.basic_publish("", one.topic, one.body, properties, mandatory=True)
            self._sent += 1
            self._open[self._sent] = None

    def _confirmed(self, frame: Any) -> None:
        if isinstance(frame.method, pika.spec.Basic.Nack):
            self._end("a message was refused")
            return
        tag = frame.method.delivery_tag
        done = [tag]
        if frame.method.multiple:
            done = [one for one in self._open if one <= tag]
        for one in done:
            self._open.pop(one, None)
        if self._sent == len(self._messages) and not self._open:
            self._end()
        elif len(self._open) <= WINDOW // 2:
            self._publish()

    def _end(self, wrong: str = "") -> None:
        self._ended, self._wrong = time.perf_counter(), wrong
        self._connection.ioloop.stop()


def _amqp(url: str) -> str:
    return url.replace("rabbitmq://", "amqp://", 1)


KIT: Final = RabbitMQKit()

if __name__ == "__main__":
    main(KIT)
