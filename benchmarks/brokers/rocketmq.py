"""RocketMQ 5, with its official Python client to send."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from benchmarks import BenchmarkError
from benchmarks.brokers import Plain, main
from delayq.targets.rocketmq import client  # noqa: F401 — before the client, which would otherwise write a log below the home folder
from testbed.rocketmq import RocketMQ

#: Messages under way at once; the client has a thread for each.
WINDOW: Final = 64
QUEUES: Final = 4


class RocketMQKit:
    """A name server, a broker and a proxy."""

    messages = 20_000
    quick = 5_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[str]:
        """Start all three, with the topics."""
        with RocketMQ() as server:
            for topic in topics:
                server.create_topic(_name(topic), queues=QUEUES)
            yield server.url

    def alone(self, url: str, messages: Sequence[Plain]) -> float:
        """Send asynchronously with the producer, a window of messages at once."""
        from rocketmq import Message, Producer

        topics = {one.topic for one in messages}
        producer = Producer(_configuration(url), [_name(topic) for topic in topics])
        producer.startup()
        room = threading.Semaphore(WINDOW)
        failed: list[BaseException] = []

        def done(future: Any) -> None:
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
                producer.send_async(message).add_done_callback(done)
            for _ in range(WINDOW):
                room.acquire()
            took = time.perf_counter() - began
        finally:
            producer.shutdown()
        if failed:
            raise BenchmarkError(f"RocketMQ did not take {len(failed)} of {len(messages)} messages: {failed[0]}")
        return took


def _configuration(url: str) -> Any:
    from rocketmq import ClientConfiguration, Credentials

    return ClientConfiguration(url.removeprefix("rocketmq://").rstrip("/"), Credentials(), request_timeout=10)


def _name(topic: str) -> str:
    """The topic's name without dots, which RocketMQ refuses."""
    return topic.replace(".", "-")


KIT: Final = RocketMQKit()

if __name__ == "__main__":
    main(KIT)
