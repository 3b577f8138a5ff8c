"""The limit: one Redis that a plain socket feeds with the fewest commands that the same messages need.

To schedule: HSET into the pool and ZADD into the queue for each message, and a ZADD for its key. To drain: HGET, XADD, ZREM
and HDEL for each message, and a ZREM for its key; each command finds its data. Records have delayq's size, stream entries
delayq's fields, and the 16 queues take turns in runs of 500 messages, as in delayq's own calls. A file has the encoded
commands.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Final

import hiredis

from benchmarks import BenchmarkError
from benchmarks.load.messages import LIMITS, QUEUES
from delayq.domain.codec import encode
from delayq.domain.message import Message
from delayq.store.keys import KEYS, Layout, QueueKeys, new_id

#: The queue and the id of a message.
Placed = tuple[int, bytes]

RUN: Final = 500
_CHUNK: Final = 1 << 17


def command(*words: bytes) -> bytes:
    """A command in the Redis protocol."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def record(message: Message) -> bytes:
    """The record of a message as delayq stores it, except for the generation."""
    return b"0000001%013d0%b" % (message.expect_date or 0, encode(message, LIMITS))


def write_schedule(path: Path, messages: Iterable[Message], run: int = RUN) -> list[Placed]:
    """Write the commands that schedule `messages`, `run` of them into each queue in turn; return the place of each message."""
    layout = Layout(QUEUES)
    placed: list[Placed] = []
    suffix = ""
    with path.open("wb", buffering=1 << 20) as file:
        for position, message in enumerate(messages):
            if position % run == 0:
                suffix = layout.random_suffix()
                queue = layout.queue_of(suffix)
                names = KEYS.queue(queue)
            id = (new_id() + suffix).encode()
            placed.append((queue, id))
            file.write(command(b"HSET", names.pool.encode(), id, record(message)))
            file.write(command(b"ZADD", names.queue.encode(), b"%d" % (message.expect_date or 0), id))
            for key in message.keys:
                file.write(command(b"ZADD", names.index.encode(), b"0", _member(key, id)))
    return placed


def write_drain(path: Path, messages: Sequence[Message], placed: Sequence[Placed]) -> int:
    """Write the commands that drain the messages of `write_schedule`, each queue by due time; return their number."""
    replies = 0
    with path.open("wb", buffering=1 << 20) as file:
        for queue, run in _runs(messages, placed):
            for position in run:
                words = drain(messages[position], KEYS.queue(queue), placed[position][1])
                file.writelines(words)
                replies += len(words)
    return replies


def _runs(messages: Sequence[Message], placed: Sequence[Placed]) -> Iterator[tuple[int, list[int]]]:
    """Yield each queue in turn with the positions of its next messages."""
    queues: list[list[int]] = [[] for _ in range(QUEUES)]
    for position in sorted(range(len(placed)), key=lambda one: (messages[one].expect_date or 0, placed[one][1])):
        queues[placed[position][0]].append(position)
    for first in range(0, max(map(len, queues)), RUN):
        for queue, positions in enumerate(queues):
            if run := positions[first : first + RUN]:
                yield queue, run


def drain(message: Message, names: QueueKeys, id: bytes) -> list[bytes]:
    """The commands that drain one message."""
    return [
        command(b"HGET", names.pool.encode(), id),
        _append(message, id),
        command(b"ZREM", names.queue.encode(), id),
        command(b"HDEL", names.pool.encode(), id),
        *(command(b"ZREM", names.index.encode(), _member(key, id)) for key in message.keys),
    ]


def _append(message: Message, id: bytes) -> bytes:
    topic = message.topic.encode()
    fields = (
        b"id", id, b"topic", topic, b"tags", message.tags.encode(), b"keys", " ".join(message.keys).encode(),
        b"body", str(message.body).encode(), b"due", b"%d" % (message.expect_date or 0), b"attempt", b"1",
    )  # fmt: skip
    return command(b"XADD", topic, b"*", *fields)


def _member(key: str, id: bytes) -> bytes:
    return key.encode() + b"\0" + id


def feed(port: int, path: Path, replies: int) -> float:
    """Send a file of commands over a plain socket and wait for as many replies; return the seconds."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection, path.open("rb") as file:
        sender = Thread(target=connection.sendfile, args=(file,), daemon=True)
        sender.start()
        _count(connection, replies)
        sender.join()
    return time.perf_counter() - began


def _count(connection: socket.socket, replies: int) -> None:
    reader = hiredis.Reader(notEnoughData=Ellipsis)
    seen = 0
    while seen < replies:
        chunk = connection.recv(_CHUNK)
        if not chunk:
            raise BenchmarkError(f"the server closed the connection after {seen} of {replies} replies")
        reader.feed(chunk)
        while (reply := reader.gets()) is not Ellipsis:
            if isinstance(reply, Exception):
                raise BenchmarkError(f"the server answered {reply}")
            seen += 1
