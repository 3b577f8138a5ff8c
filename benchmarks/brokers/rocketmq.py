"""RocketMQ 5, by its official Python client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.brokers import Broker, Note, Plain
from benchmarks.brokers.rocketmq_pull import QueueReader
from benchmarks.errors import BenchmarkError
from delayq.targets.rocketmq import client  # noqa: F401 — before the client, which would write a log elsewhere
from testbed.rocketmq import RocketMQ

__all__ = ["KIT"]

PATIENCE: Final = 8.0
#: Messages under way at once; the client has a thread for each.
WINDOW: Final = 64
GROUP: Final = "bench"
QUEUES: Final = 4


class RocketMQKit:
    """Name server, broker and proxy."""

    messages = 20_000
    quick = 5_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[Broker]:
        """All of them, with the topics."""
        with RocketMQ() as server:
            for topic in topics:
                server.create_topic(_name(topic), queues=QUEUES)
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
                own = {"id": one.id, "topic": one.topic, "due": str(one.due), "attempt": str(one.attempt)}
                for name, value in own.items():
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

    def source(self, broker: Broker) -> str:
        """The broker itself, behind the proxy."""
        assert isinstance(broker, RocketMQ)
        return broker.broker_address

    def read(self, source: str, topic: str, count: int, note: Note) -> None:
        """From the topic's beginning, by a thread for each of its queues."""
        lock = threading.Lock()
        seen = 0
        last = time.monotonic() + 60 - PATIENCE

        def pull(queue: int) -> None:
            nonlocal last, seen
            with QueueReader(source, GROUP, _name(topic), queue) as reader:
                while seen < count and time.monotonic() < last + PATIENCE:
                    got = reader.pull()
                    with lock:
                        for properties, stored in got:
                            note(int(properties["delayq_due"]), stored)
                            last = time.monotonic()
                            seen += 1

        with ThreadPoolExecutor(QUEUES) as threads:
            for done in [threads.submit(pull, queue) for queue in range(QUEUES)]:
                done.result()


def _configuration(url: str) -> Any:
    from rocketmq import ClientConfiguration, Credentials

    return ClientConfiguration(url.removeprefix("rocketmq://").rstrip("/"), Credentials(), request_timeout=10)


def _name(topic: str) -> str:
    """RocketMQ's topics have no dots."""
    return topic.replace(".", "-")


KIT: Final = RocketMQKit()
