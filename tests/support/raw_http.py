"""The API's HTTP protocol on a transport in memory: bytes in, requests and bytes out. And what those bytes mean."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from uvicorn.server import ServerState

from api.asgi import answer_problem
from api.server import Config, Protocol
from api.wire.problems import Problem


class Requested(NamedTuple):
    """What an application was called with, or what bytes ask for."""

    method: str
    target: str
    body: bytes


class Answered(NamedTuple):
    """One answer in the bytes that a server sent."""

    status: int
    headers: dict[str, str]
    body: bytes


class Transport(asyncio.Transport):
    """Keeps what is written. A test reads it, and nothing blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.paused = False
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 40_000), "sockname": ("192.0.2.2", 8_080)}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed:
            self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Connection:
    """One connection to an application that records each request and answers with its target.

    `reads_bodies`: the application reads the complete body first, as a handler of a POST does. Otherwise it answers at
    once.
    """

    def __init__(self, *, reads_bodies: bool = True) -> None:
        self.reads_bodies = reads_bodies
        self.requested: list[Requested] = []
        self.transport = Transport()
        config = Config(self._app, 100, interface="asgi3")
        config.load()
        self.state = ServerState()
        self.protocol = Protocol(config, self.state, {})
        self.protocol.connection_made(self.transport)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = self.reads_bodies
        while more:
            try:
                message = await receive()
            except Problem as problem:
                await answer_problem(problem)(scope, receive, send)
                return
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        target = _target(scope["raw_path"] + b"?" + scope["query_string"])
        self.requested.append(Requested(scope["method"], target, body))
        length = b"%d" % len(target)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": target.encode()})

    async def feed(self, chunks: Iterable[bytes]) -> None:
        """Send the chunks, each when the protocol reads, and let the application do what it can."""
        for chunk in chunks:
            await self._settle()
            if self.transport.closed:
                break
            self.protocol.data_received(chunk)
        await self._settle()

    async def _settle(self) -> None:
        """Until the application waits for bytes."""
        for _ in range(6):
            await asyncio.sleep(0)
        while self.transport.paused and not self.transport.closed:  # noqa: ASYNC110 - the application only needs turns
            await asyncio.sleep(0)

    async def close(self) -> None:
        """The peer goes away; every task of the application must end by that."""
        self.transport.closed = True
        self.protocol.connection_lost(None)
        if tasks := list(self.state.tasks):
            await asyncio.wait(tasks)


_HEAD: Final = re.compile(rb"[\r\n]*([A-Z-]+) +(\S+) +(?:HTTP|RTSP|ICE)/(\d\.\d)\r\n((?:[^\r\n]+\r\n)*)\r\n")
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})(?:;[^\r\n]*)?\r\n")
_TRAILERS: Final = re.compile(rb"(?:[^\r\n]+\r\n)*\r\n")


def _target(raw: bytes) -> str:
    """A target as both sides show it: an empty query is none, and a fragment is not sent."""
    return raw.partition(b"#")[0].decode("latin-1").rstrip("?")


def requests(data: bytes) -> Iterator[Requested]:
    """The requests in bytes, as RFC 9112 frames them, up to where it knows none. It knows no Upgrade."""
    at = 0
    while head := _HEAD.match(data, at):
        method, target, _, lines = head.groups()
        at = head.end()
        length, coding = 0, b""
        for line in lines.split(b"\r\n")[:-1]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                if not value.strip(b" \t").isdigit():
                    return
                length = int(value)
            if name.lower() == b"transfer-encoding":
                coding = value.strip(b" \t").lower().rpartition(b",")[2].strip(b" \t")
        body = data[at : at + length]
        if len(body) < length:
            return
        at += length
        if coding:
            while size := _SIZE.match(data, at):
                at = size.end() + int(size[1], 16)
                if not int(size[1], 16):
                    break
                body += data[size.end() : at]
                if data[at : at + 2] != b"\r\n":
                    return
                at += 2
            trailers = _TRAILERS.match(data, at)
            if size is None or trailers is None:
                return
            at = trailers.end()
        yield Requested(method.decode(), _target(target), body)


def answers(sent: bytes) -> list[Answered]:
    """The answers in bytes of a server, which give a Content-Length each; an interim answer has no body."""
    found = []
    at = 0
    while at < len(sent):
        head, _, _ = sent[at:].partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        at += len(head) + 4
        length = int(headers.get("content-length", "0"))
        found.append(Answered(int(status.split()[1]), headers, sent[at : at + length]))
        at += length
    return found
