"""`python -m devtools.walk`: the files through which one message passes, from the HTTP request to its target.

One message is scheduled through the API and delivered by a worker, all in this process. Each file of
delayq whose functions run for it is listed once for each leg, in the order of the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from api.app import create_app
from delayq import Client, Settings
from delayq.embedded import EmbeddedServer
from workers.node.node import Node

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("api", "coordinator", "delayq", "workers")
TARGETS = ("stream", "kafka")


class Trace:
    """The files that ran, by thread, in order."""

    def __init__(self) -> None:
        self.on = False
        self.legs: dict[str, dict[str, int]] = {}

    def look(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function: notes the file of each call."""
        if self.on and event == "call" and (file := self._product(frame.f_code.co_filename)):
            leg = self.legs.setdefault(threading.current_thread().name.rstrip("-0123456789"), {})
            leg[file] = leg.get(file, 0) + 1

    def _product(self, name: str) -> str:
        path = name.removeprefix(f"{ROOT}/")
        return path if path.startswith(PRODUCT) and path.endswith(".py") else ""


async def post(app: Any, message: dict[str, Any]) -> int:
    """Ask the API as a client would; the status of its answer."""
    body = json.dumps(message).encode()
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(part: dict[str, Any]) -> None:
        statuses.append(part.get("status", 0))

    path = "/v1/messages"
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    return statuses[0]


@contextmanager
def worker(settings: Settings) -> Iterator[None]:
    """A node in a thread of its own, which owns all queues."""
    node = Node(settings)
    thread = threading.Thread(target=node.run, name="node", daemon=True)
    thread.start()
    try:
        until(lambda: len(node.jobs) == 16)
        time.sleep(1.5)  # its first looks are over
        yield
    finally:
        node.stop()
        thread.join(20)


def until(there: Callable[[], bool]) -> None:
    """Wait until it is there, at most 20 s."""
    ends = time.monotonic() + 20
    while not there():
        if time.monotonic() > ends:
            sys.exit("walk: the message did not arrive")
        time.sleep(0.01)


def walk(target: str) -> Trace:
    """Follow one message."""
    trace = Trace()
    threading.setprofile(trace.look)
    with EmbeddedServer() as server:
        routes = ""
        if target == "kafka":
            from confluent_kafka import Producer  # its client has a broker for tests

            mock = Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0})
            brokers = ",".join(str(broker).split("/")[0] for broker in mock.list_topics(timeout=10).brokers.values())
            routes = json.dumps([{"name": "kafka", "match": "*", "target": f"kafka://{brokers}/{{topic}}"}])
        settings = Settings(redis_url=server.url, routes=routes)

        async def scheduled() -> None:
            app = create_app(settings)
            await post(app, {"topic": "warm", "body": "up", "delayTime": 10_000})
            sys.setprofile(trace.look)
            trace.on = True
            status = await post(app, {"topic": "orders", "body": "x", "delayTime": 300, "keys": ["order-1"]})
            sys.setprofile(None)
            if status != 201:
                sys.exit(f"walk: the API answered {status}")
            await app.service.close()

        with worker(settings), Client(server.url) as client:
            asyncio.run(scheduled())
            until(lambda: sum(queue.counters["delivered"] for queue in client.queues()) == 1)
            trace.on = False
    return trace


def main() -> None:
    """Print each leg, and how many files there are in all."""
    parser = argparse.ArgumentParser(prog="python -m devtools.walk", description=__doc__)
    parser.add_argument("target", choices=TARGETS, nargs="?", default="stream")
    target = parser.parse_args().target
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    trace = walk(target)
    files: dict[str, None] = {}
    for thread, leg in trace.legs.items():
        if thread == "node":  # its duties go on beside the message
            continue
        print(f"{thread}: {sum(leg.values())} calls")
        for file, calls in leg.items():
            files[file] = None
            print(f"  {calls:4} {file}")
    lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)
    print(f"{len(files)} files, {lines:,} lines")


if __name__ == "__main__":
    main()
