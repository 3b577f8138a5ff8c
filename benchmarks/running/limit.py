"""The limit: one Redis fed by `redis-cli --pipe` with the fewest commands that the same messages need.

To schedule: HSET into the pool and ZADD into the queue of each message, and a ZADD of its key. To drain: HGET,
XADD, ZREM and HDEL of each, and a ZREM of its key, all of them hitting; or, in batches of 200, HMGET, XADD of each,
ZREMRANGEBYRANK, HDEL and a ZREM of all keys. Records have delayq's size, stream entries
delayq's fields, and the 16 queues take turns in runs of 500 messages, as in delayq's own calls. The commands stand
in a file, encoded beforehand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.errors import BenchmarkError
from benchmarks.load import feeder
from benchmarks.load.messages import LIMITS, QUEUES
from delayq.codec import encode
from delayq.message import Message
from delayq.store.keys import Layout, QueueKeys, new_id, queue_keys

__all__ = [
    "Placed",
    "command",
    "drain",
    "feed",
    "record",
    "redis_cli",
    "write_batches",
    "write_drain",
    "write_schedule",
]

#: Where a message went: its queue and its id.
Placed = tuple[int, bytes]

RUN: Final = 500
BATCH: Final = 200
_CLI: Final = ("redis-cli", "valkey-cli")


def command(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def record(message: Message) -> bytes:
    """What delayq keeps of a message, byte for byte but for the generation."""
    return b"0000001%013d0%b" % (message.expect_date or 0, encode(message, LIMITS))


def write_schedule(path: Path, messages: Iterable[Message], run: int = RUN) -> list[Placed]:
    """Write the commands that schedule `messages`, `run` of them into a queue at a time; where each of them went."""
    layout = Layout(QUEUES)
    placed: list[Placed] = []
    suffix = ""
    with path.open("wb", buffering=1 << 20) as file:
        for position, message in enumerate(messages):
            if position % run == 0:
                suffix = layout.random_suffix()
                queue = layout.queue_of(suffix)
                names = queue_keys(queue)
            id = (new_id() + suffix).encode()
            placed.append((queue, id))
            file.write(command(b"HSET", names.pool.encode(), id, record(message)))
            file.write(command(b"ZADD", names.queue.encode(), b"%d" % (message.expect_date or 0), id))
            for key in message.keys:
                file.write(command(b"ZADD", names.index.encode(), b"0", _member(key, id)))
    return placed


def write_drain(path: Path, messages: Sequence[Message], placed: Sequence[Placed]) -> int:
    """Write the commands that drain what `write_schedule` put there, each queue by due; how many they are."""
    replies = 0
    with path.open("wb", buffering=1 << 20) as file:
        for queue, run in _runs(messages, placed, RUN):
            for position in run:
                words = drain(messages[position], queue_keys(queue), placed[position][1])
                file.writelines(words)
                replies += len(words)
    return replies


def write_batches(path: Path, messages: Sequence[Message], placed: Sequence[Placed]) -> int:
    """Write what drains the same in batches: only XADD is a command of each message; how many they are."""
    replies = 0
    with path.open("wb", buffering=1 << 20) as file:
        for queue, run in _runs(messages, placed, BATCH):
            words = _batch([messages[position] for position in run], queue_keys(queue), [placed[one][1] for one in run])
            file.writelines(words)
            replies += len(words)
    return replies


def _runs(messages: Sequence[Message], placed: Sequence[Placed], size: int) -> Iterator[tuple[int, list[int]]]:
    """Of each queue in turn the positions of those that are first in it, so many at a time."""
    queues: list[list[int]] = [[] for _ in range(QUEUES)]
    for position in sorted(range(len(placed)), key=lambda one: (messages[one].expect_date or 0, placed[one][1])):
        queues[placed[position][0]].append(position)
    for first in range(0, max(map(len, queues)), size):
        for queue, positions in enumerate(queues):
            if run := positions[first : first + size]:
                yield queue, run


def _batch(messages: Sequence[Message], names: QueueKeys, ids: Sequence[bytes]) -> list[bytes]:
    members = [_member(key, id) for message, id in zip(messages, ids, strict=True) for key in message.keys]
    return [
        command(b"HMGET", names.pool.encode(), *ids),
        *(_append(message, id) for message, id in zip(messages, ids, strict=True)),
        command(b"ZREMRANGEBYRANK", names.queue.encode(), b"0", b"%d" % (len(ids) - 1)),
        command(b"HDEL", names.pool.encode(), *ids),
        *([command(b"ZREM", names.index.encode(), *members)] if members else []),
    ]


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


def redis_cli() -> str | None:
    """The path of redis-cli, or of its twin valkey-cli; without one, the socket feeder measures the limit."""
    return next(filter(None, map(shutil.which, _CLI)), None)


def feed(port: int, path: Path, replies: int) -> float:
    """Send a file of commands and wait for as many replies; the seconds it took."""
    began = time.perf_counter()
    if (cli := redis_cli()) is None:
        feeder.feed(port, path, replies)
    else:
        with path.open("rb") as file:
            ran = subprocess.run(
                [cli, "-h", "127.0.0.1", "-p", str(port), "--pipe"],
                stdin=file,
                capture_output=True,
                text=True,
                check=False,
            )
        said = re.search(r"errors: (\d+), replies: (\d+)", ran.stdout)
        if said is None or said.groups() != ("0", str(replies)):
            raise BenchmarkError(f"redis-cli --pipe, with {replies} commands, said: {ran.stdout}{ran.stderr}")
    return time.perf_counter() - began
