"""uvicorn with the limits that it does not have by itself: on a head's size, and on the time of a head and a body."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api import asgi
from api.asgi import answer_problem
from api.wire.problems import Problem
from delayq import Settings

__all__ = ["Server", "make_server"]

HEAD_BYTES: Final = 32 * 1024
HEAD_SECONDS: Final = 10.0
#: A little longer than who reads a body waits for it: then there is an answer first.
BODY_SECONDS: Final = asgi.BODY_SECONDS + 2
KEEP_ALIVE_SECONDS: Final = 75  # longer than load balancers keep an idle connection: 60 s
STOP_SECONDS: Final = 8

log = structlog.get_logger()


class Protocol(HttpToolsProtocol):
    """One connection. A head that is too large gets 431; what does not come in time gets its connection closed.

    Both times run from the beginning of a head or body, however many bytes of it drip in, and whether or not anybody
    waits for it: that of a request that was refused before its body came is waited for by nobody.
    """

    _in_head = True
    _in_body = False
    _head_bytes = 0  # of the head that is coming, without the chunk in which it began
    _chunk = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        self._chunk = len(data)
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            if was_in_head:
                self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse_head()
            elif self._deadline is None:
                self._wait_for_head()
        elif self._in_body and self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_body = True
        if self._deadline is not None:
            self._stop_waiting()
        # Adding the headers up costs something, so only where they may be too many.
        if self._head_bytes + self._chunk > HEAD_BYTES and self._size_of_head() > HEAD_BYTES:
            self._refuse_head()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._deadline is not None:
            self._stop_waiting()
        if not self.transport.is_closing():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser does not understand."""
        self._refuse(Problem("invalid", f"{msg.rstrip('.')}: this is no HTTP/1.1."))

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        detail = f"The head of a request has at most {HEAD_BYTES} bytes; send shorter headers or a shorter path."
        self._refuse(Problem("head-too-large", detail))

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        answer = answer_problem(problem)
        status = HTTPStatus(answer.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        lines += [b"connection: close", b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """uvicorn's server, stopped by `stop`; who runs it minds the signals."""

    def stop(self) -> None:
        """Finish the requests that are under way, then return from `serve`; a second call does not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        log.info("api_started", address=f"{self.config.host}:{self.config.port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, and finish those that are under way."""
        log.info("api_stopping")
        await super().shutdown(sockets)
        log.info("api_stopped")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are: they are caught before there is a server."""
        yield


def make_server(app: Any, settings: Settings) -> Server:
    """The server of an application."""
    config = uvicorn.Config(
        app,
        host=settings.api_host,
        port=settings.api_port,
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config)
