"""Receivers over HTTP: `receivers URL CONNECTIONS TOPICS COUNT FILE` lets connections wait for messages again and again.

Each connection calls `:receive` of one topic with a wait of 30 s. The first wait is a random one, so that not all of them end
together. The next call acknowledges the messages of the last one. For each message the program writes what a consumer of
`traffic` writes. It ends after COUNT messages. It creates the file when all connections wait.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
import uuid
from array import array
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import BenchmarkError

#: The arguments of Python that run the receivers.
RECEIVE: Final = ("-m", "benchmarks.load.receivers")
WAIT_MS: Final = 30_000
MOST: Final = 10
#: Connections that are opened in a second.
OPENED: Final = 250


class _Message(msgspec.Struct, rename="camel"):
    due_ms: int
    lease: str


class _Answer(msgspec.Struct):
    messages: list[_Message]


_answer: Final = msgspec.json.Decoder(_Answer)


class _Receivers:
    """The connections, and the numbers of the messages that they received."""

    def __init__(self, url: str, connections: int, topics: list[str], count: int) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port, self._connections, self._topics, self._count = int(port), connections, topics, count
        self.numbers: array[int] = array("q")
        self._waiting = 0
        self._all_wait, self._all_received = asyncio.Event(), asyncio.Event()

    async def run(self, path: Path) -> None:
        """Receive until all messages have arrived."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(number)) for number in range(self._connections)]
            await self._all_wait.wait()
            path.touch()  # noqa: ASYNC240 -- all connections wait meanwhile
            await self._all_received.wait()
            for task in tasks:
                task.cancel()

    async def _one(self, number: int) -> None:
        await asyncio.sleep(number / OPENED)
        reader, writer = await asyncio.open_connection(self._host, self._port)
        topic = self._topics[number % len(self._topics)]
        wait, leases = random.randint(1_000, WAIT_MS), list[str]()
        while True:
            call = uuid.uuid4().hex  # as all clients do
            body = json.dumps({"group": "bench", "max": MOST, "wait": wait, "ack": leases, "call": call}).encode()
            head = (
                f"POST /v1/topics/{topic}:receive HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            )
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            self._waiting += 1
            if self._waiting == self._connections:
                self._all_wait.set()
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
            answer = await reader.readexactly(length)
            arrived = time.time_ns() // 1_000
            if status.split()[1] != b"200":
                raise BenchmarkError(f"the API answered {answer!r}")
            messages = _answer.decode(answer).messages
            for one in messages:
                self.numbers.extend((one.due_ms, arrived, int(one.lease.split(".")[1].split("-")[0])))
            if len(self.numbers) >= 3 * self._count:
                self._all_received.set()
            wait, leases = WAIT_MS, [one.lease for one in messages]


def _receive(url: str, connections: str, topics: str, count: str, path: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    receivers = _Receivers(url, int(connections), topics.split(","), int(count))
    try:
        asyncio.run(receivers.run(Path(path)))
    finally:
        Path(path).write_bytes(receivers.numbers.tobytes())


if __name__ == "__main__":
    _receive(*sys.argv[1:])
