"""RocketMQ 5, with its official Python client to send.

The consumer reads each queue from the broker with the remoting protocol, like the Java client. The Python client's consumers
cannot be used to measure. Consumers without acknowledgements lose messages when a reply is lost. The others take half a core
for 1,000 messages a second. A pull names the offset at which it continues, so no message is lost. The broker answers a
waiting pull as soon as a message arrives.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final

from benchmarks import BenchmarkError
from benchmarks.brokers import Broker, Note, Plain, main
from delayq.targets.rocketmq import client  # noqa: F401 — before the client, which would otherwise write a log below the home folder
from testbed.rocketmq import RocketMQ
from testbed.rocketmq_remoting import exchange

PATIENCE: Final = 8.0
#: Messages under way at once; the client has a thread for each.
WINDOW: Final = 64
GROUP: Final = "bench"
QUEUES: Final = 4

#: Codes of the remoting protocol: a pull, and its possible answers.
_PULL: Final = 11
_FOUND, _NOTHING, _AGAIN, _MOVED = 0, 19, 20, 21
#: The request has its subscription, and waits if there is no message.
_FLAGS: Final = 2 | 4
_WAIT_MS: Final = 1_000
_MOST: Final = 500
#: Places in a stored message: its size, when the broker stored it (Unix ms), the size of its body.
_SIZE, _STORED, _BODY = (0, Struct(">i")), (56, Struct(">q")), (84, Struct(">i"))
_VERSION_2: Final = 0xDAA320AB - (1 << 32)

#: The properties of a message, and when the broker stored it (Unix ms).
Read = tuple[dict[str, str], int]


class RocketMQKit:
    """A name server, a broker and a proxy."""

    messages = 20_000
    quick = 5_000

    @contextmanager
    def running(self, topics: Sequence[str]) -> Iterator[Broker]:
        """Start all three, with the topics."""
        with RocketMQ() as server:
            for topic in topics:
                server.create_topic(_name(topic), queues=QUEUES)
            server.create_group(GROUP)
            yield server

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

    def source(self, broker: Broker) -> str:
        """The address of the broker behind the proxy."""
        assert isinstance(broker, RocketMQ)
        return broker.broker_address

    def read(self, source: str, topic: str, count: int, note: Note) -> None:
        """Read the topic from its beginning, with a thread for each queue."""
        lock = threading.Lock()
        seen = 0
        last = time.monotonic() + 60 - PATIENCE

        def pull(queue: int) -> None:
            nonlocal last, seen
            with _QueueReader(source, GROUP, _name(topic), queue) as reader:
                while seen < count and time.monotonic() < last + PATIENCE:
                    got = reader.pull()
                    with lock:
                        for properties, stored in got:
                            note(int(properties["delayq_due"]), stored)
                            last = time.monotonic()
                            seen += 1

        with ThreadPoolExecutor(QUEUES) as threads:
            for future in [threads.submit(pull, queue) for queue in range(QUEUES)]:
                future.result()


def _configuration(url: str) -> Any:
    from rocketmq import ClientConfiguration, Credentials

    return ClientConfiguration(url.removeprefix("rocketmq://").rstrip("/"), Credentials(), request_timeout=10)


def _name(topic: str) -> str:
    """The topic's name without dots, which RocketMQ refuses."""
    return topic.replace(".", "-")


class _QueueReader:
    """Reads one queue from its beginning."""

    def __init__(self, address: str, group: str, topic: str, queue: int) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=10 + _WAIT_MS / 1000)
        self._fields: dict[str, Any] = {
            "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": 0, "maxMsgNums": _MOST,
            "sysFlag": _FLAGS, "commitOffset": 0, "suspendTimeoutMillis": _WAIT_MS, "subscription": "*",
            "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def pull(self) -> list[Read]:
        """The next messages; an empty list if none arrived within a second."""
        try:
            answer = exchange(self._connection, _PULL, self._fields)
        except ConnectionResetError:
            raise BenchmarkError("RocketMQ's broker closed the connection of a consumer") from None
        if answer.code not in (_FOUND, _NOTHING, _AGAIN, _MOVED):
            raise BenchmarkError(f"RocketMQ's broker answered a pull with {answer.remark or answer.code}")
        self._fields["queueOffset"] = answer.fields["nextBeginOffset"]
        return list(_messages(answer.body)) if answer.code == _FOUND else []

    def __enter__(self) -> _QueueReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _messages(raw: bytes) -> Iterator[Read]:
    at = 0
    while at < len(raw):
        size, stored, body = (field.unpack_from(raw, at + place)[0] for place, field in (_SIZE, _STORED, _BODY))
        topic_at = at + _BODY[0] + 4 + body
        (magic,) = _SIZE[1].unpack_from(raw, at + 4)
        wide = 2 if magic == _VERSION_2 else 1
        properties_at = topic_at + wide + int.from_bytes(raw[topic_at : topic_at + wide], "big")
        (length,) = struct.unpack_from(">h", raw, properties_at)
        text = raw[properties_at + 2 : properties_at + 2 + length].decode()
        pairs = (pair.partition("\1") for pair in text.split("\2") if pair)
        yield {name: value for name, _, value in pairs}, stored
        at += size


KIT: Final = RocketMQKit()

if __name__ == "__main__":
    main(KIT)
