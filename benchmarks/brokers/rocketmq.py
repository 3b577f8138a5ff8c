"""RocketMQ 5, by its official Python client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.brokers import Broker, Note, Plain
from benchmarks.errors import BenchmarkError
from delayq.targets import rocketmq_client  # noqa: F401 — before the client, which would write a log elsewhere
from servers.rocketmq import RocketMQ

__all__ = ["KIT"]

PATIENCE: Final = 8.0
#: Messages under way at once; the client has a thread for each.
WINDOW: Final = 64
GROUP: Final = "bench"
_VISIBLE_AGAIN: Final = 600  # seconds: nothing is acknowledged, so as not to slow the consumer


class RocketMQKit:
    """Name server, broker and proxy; a topic has four queues."""

    messages = 20_000
    quick = 5_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[Broker]:
        """All of them, with the topics."""
        with RocketMQ() as server:
            for topic in topics:
                server.create_topic(_name(topic))
            server.create_group(GROUP)
            yield server

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """The producer's asynchronous sends, a window of them under way."""
        from rocketmq import Message, Producer

        topics = {one.topic for one in messages}
        producer = Producer(_configuration(url), [_name(topic) for topic in topics])
        producer.startup()
        room = threading.Semaphore(WINDOW)
        failed: list[BaseException] = []

        def told(future: Any) -> None:
            if (error := future.exception()) is not None:
                failed.append(error)
            room.release()

        try:
            began = time.perf_counter()
            for one in messages:
                message = Message()
                message.topic, message.body, message.tag, message.keys = _name(one.topic), one.body, one.tags, one.key
                for name, value in one.more:
                    message.add_property(name, value)
                room.acquire()
                producer.send_async(message).add_done_callback(told)
            for _ in range(WINDOW):
                room.acquire()
            took = time.perf_counter() - began
        finally:
            producer.shutdown()
        if failed:
            raise BenchmarkError(f"RocketMQ did not take {len(failed)} of {len(messages)} messages: {failed[0]}")
        return took

    def read(self, url: str, topic: str, count: int, note: Note) -> None:
        """From the topic's beginning, by a thread for each of its queues."""
        import grpc
        from rocketmq import FilterExpression, SimpleConsumer
        from rocketmq.v5.exception import ClientException

        consumer = SimpleConsumer(_configuration(url), GROUP, {_name(topic): FilterExpression()}, await_duration=5)
        consumer.startup()
        lock = threading.Lock()
        seen: set[str] = set()
        last = time.monotonic() + 45

        def receive() -> None:
            nonlocal last
            while len(seen) < count and time.monotonic() < last + PATIENCE:
                try:
                    got = consumer.receive(32, _VISIBLE_AGAIN) or []
                except (ClientException, grpc.RpcError):  # nothing new, or it has not told the proxy of itself yet
                    continue
                with lock:
                    for one in got:
                        last = time.monotonic()
                        id = one.properties["delayq_id"]
                        if id not in seen:
                            seen.add(id)
                            note(int(one.properties["delayq_due"]), 0)

        threads = [threading.Thread(target=receive) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        consumer.shutdown()


def _configuration(url: str) -> Any:
    from rocketmq import ClientConfiguration, Credentials

    return ClientConfiguration(url.removeprefix("rocketmq://").rstrip("/"), Credentials(), request_timeout=10)


def _name(topic: str) -> str:
    """RocketMQ's topics have no dots."""
    return topic.replace(".", "-")


KIT: Final = RocketMQKit()
