"""A worker's own HTTP port: /livez, /readyz and /metrics. One thread serves it, and no slow caller can block it.

A connection carries one request, so the bytes after its head are never read as another request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from delayq.base.listening import listen
from workers.node.node import Node

#: The most open connections. A further one closes the oldest, so that slow callers cannot block a probe.
CONNECTIONS: Final = 64
#: The longest life of a connection (s), even if its caller writes or reads slowly.
SECONDS: Final = 10.0
HEAD_BYTES: Final = 16 * 1024

_FIRST_LINE: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")


def serve(host: str, port: int, node: Node, registry: CollectorRegistry) -> HealthPort:
    """Serve until the process ends or the port is closed; raises ConfigError if the port cannot be opened."""
    return HealthPort(listen(host, port, "DELAYQ_WORKER_PORT"), node, registry)


class HealthPort:
    """The port, with its own thread."""

    def __init__(self, sockets: list[socket.socket], node: Node, registry: CollectorRegistry) -> None:
        self._sockets = sockets
        self._node = node
        self._registry = registry
        self._open: dict[asyncio.Task[Any], None] = {}  # the oldest first
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the port and its connections."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for one in self._sockets:
                server = await asyncio.start_server(self._connected, sock=one, limit=HEAD_BYTES)
                await stack.enter_async_context(server)
            await self._stopped.wait()
            for task in list(self._open):
                task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            # A caller that closes the connection, or is too slow, gets no answer. That is not worth a log entry.
            with contextlib.suppress(TimeoutError, OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
                async with asyncio.timeout(SECONDS):
                    await self._answer(reader, writer)
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = _json(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                {"status": f"the head of a request has at most {HEAD_BYTES} bytes"},
            )
        else:
            answer = await self._answer_to(head)
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
        while await reader.read(HEAD_BYTES):
            pass  # a close before the caller has sent all bytes could destroy the answer

    async def _answer_to(self, head: bytes) -> bytes:
        first = _FIRST_LINE.match(head)
        if first is None:
            return _json(HTTPStatus.BAD_REQUEST, {"status": "not an HTTP/1.1 request"})
        method, target = first.groups()
        if method not in (b"GET", b"HEAD"):
            return _json(HTTPStatus.METHOD_NOT_ALLOWED, {"status": "this port takes GET and HEAD"}, "Allow: GET, HEAD")
        match target.partition(b"?")[0]:
            case b"/livez":
                answer = _json(HTTPStatus.OK, {"status": "alive"})
            case b"/readyz":
                answer = await asyncio.to_thread(self._ready)
            case b"/metrics":
                answer = await asyncio.to_thread(self._metrics)
            case _:
                answer = _json(
                    HTTPStatus.NOT_FOUND, {"status": "not found: the paths are /livez, /readyz and /metrics"}
                )
        return answer if method == b"GET" else answer[: answer.index(b"\r\n\r\n") + 4]

    def _ready(self) -> bytes:
        if missing := self._node.complaints():
            return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", "missing": missing})
        return _json(HTTPStatus.OK, {"status": "ready"})

    def _metrics(self) -> bytes:
        return _response(HTTPStatus.OK, generate_latest(self._registry), f"Content-Type: {CONTENT_TYPE_LATEST}")


def _json(status: HTTPStatus, body: dict[str, Any], *headers: str) -> bytes:
    return _response(status, json.dumps(body).encode(), "Content-Type: application/json", *headers)


def _response(status: HTTPStatus, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", f"Date: {formatdate(usegmt=True)}", *headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body
