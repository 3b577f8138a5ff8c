"""Reads a queue of a RocketMQ topic from its broker by the remoting protocol, as the Java client's consumers do.

The Python client's consumers do not do to measure with: those that acknowledge nothing lose messages when the answer to
a receive call is lost, and those that do take half a core for 1,000 messages a second, of two that the machine may have.
A pull names the offset from which it goes on: nothing is lost, and an answer to a pull that waits comes with the message.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from benchmarks.errors import BenchmarkError
from testbed.rocketmq_remoting import exchange

__all__ = ["QueueReader", "Read"]

_PULL: Final = 11
_FOUND, _NOTHING, _AGAIN, _MOVED = 0, 19, 20, 21
#: The request says what it subscribes to, and waits where there is nothing.
_FLAGS: Final = 2 | 4
_WAIT_MS: Final = 1_000
_MOST: Final = 500
#: Where these stand in a message as it is stored: its size, when the broker had it (Unix ms), the size of its body.
_SIZE, _STORED, _BODY = (0, Struct(">i")), (56, Struct(">q")), (84, Struct(">i"))
_VERSION_2: Final = 0xDAA320AB - (1 << 32)

#: A message's properties, and when the broker had it, Unix ms.
Read = tuple[dict[str, str], int]


class QueueReader:
    """One queue, from its beginning."""

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
        """What is there; nothing if nothing came for a second."""
        try:
            answer = exchange(self._connection, _PULL, self._fields)
        except ConnectionResetError:
            raise BenchmarkError("RocketMQ's broker closed the connection of a consumer") from None
        if answer.code not in (_FOUND, _NOTHING, _AGAIN, _MOVED):
            raise BenchmarkError(f"RocketMQ's broker answered a pull with {answer.remark or answer.code}")
        self._fields["queueOffset"] = answer.fields["nextBeginOffset"]
        return list(_messages(answer.body)) if answer.code == _FOUND else []

    def __enter__(self) -> QueueReader:
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
