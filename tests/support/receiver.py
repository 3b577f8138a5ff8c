"""A real HTTP or HTTPS server that answers webhooks as a test requests, and keeps their requests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any, Self

from delayq.embedded.processes import LOCALHOST
from tests.support.timeouts import HTTP_TIMEOUT


@dataclass(frozen=True)
class Request:
    """What arrived; header names are in lower case. `connection` numbers the connections from 0."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True)
class Answer:
    """What is answered; `raw` writes to the socket by itself instead, after which the connection ends."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: Callable[[socket], None] | None = None


class Receiver:
    """`with Receiver() as receiver:` serves until the end of the block; `answer` returns the answer to each request."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda request: Answer()
        self.connections = 0
        #: Set at the end: what writes slowly or waits is to stop.
        self.over = threading.Event()
        self._scheme = "https" if tls else "http"
        self._server = _Server(self, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="receiver", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def url(self, host: str = LOCALHOST, path: str = "/hook") -> str:
        """Its URL by this host."""
        return f"{self._scheme}://{host}:{self.port}{path}"

    @property
    def ids(self) -> list[str]:
        """The ids of the messages, as they arrived."""
        return [request.headers["ce-id"] for request in self.requests]

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        """From now on answer so; an underscore in a header's name is a hyphen."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = lambda request: Answer(status, given, body)

    def say_raw(self, write: Callable[[socket], None]) -> None:
        """From now on write to the socket."""
        self.answer = lambda request: Answer(raw=write)

    def drip(self, first: bytes, again: bytes) -> None:
        """From now on write `first`, and then `again` every 50 ms until the client or the test ends."""

        def write(sock: socket) -> None:
            sock.sendall(first)
            while not self.over.wait(0.05):
                sock.sendall(again)

        self.say_raw(write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.close_all()
        self._server.server_close()
        self._thread.join(HTTP_TIMEOUT)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, receiver: Receiver, tls: ssl.SSLContext | None) -> None:
        self.receiver = receiver
        self.tls = tls
        self.lock = threading.Lock()
        self.open: set[socket] = set()
        super().__init__((LOCALHOST, 0), _Handler)

    def close_all(self) -> None:
        with self.lock:
            for one in self.open:
                one.close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(HTTP_TIMEOUT)
        if self.tls is not None:
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                return  # the client did not like the certificate
        with self.lock:
            self.open.add(request)
        try:
            super().finish_request(request, client_address)
        finally:
            with self.lock:
                self.open.discard(request)
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.number = self.server.receiver.connections
            self.server.receiver.connections += 1

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert len(headers) == len(self.headers.items()), "a header came twice"
        request = Request(self.command, self.path, headers, body, self.number)
        receiver.requests.append(request)
        answer = receiver.answer(request)
        if answer.raw is not None:
            self.close_connection = True
            answer.raw(self.connection)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
