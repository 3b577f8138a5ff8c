"""uvicorn with more limits and rules: the size of a head, the time of each part, and one answer per request."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from api import asgi
from api.asgi import answer_problem
from api.memory import LARGE, need_room
from api.wire.problems import Problem
from delayq import Settings
from delayq.base.listening import listen, shown

HEAD_BYTES: Final = 32 * 1024
HEAD_SECONDS: Final = 10.0
#: A little longer than the reader of a body waits, so that an answer is sent first.
BODY_SECONDS: Final = asgi.BODY_SECONDS + 2
#: The time that a caller may take to read an answer.
ANSWER_SECONDS: Final = 60.0
KEEP_ALIVE_SECONDS: Final = 75  # longer than load balancers keep an idle connection: 60 s
STOP_SECONDS: Final = 8
#: File descriptors that connections leave to Redis, the log and the file of keys.
SPARE_FILES: Final = 64
#: The methods of all paths.
ALLOW: Final = ((b"allow", b"DELETE, GET, HEAD, PATCH, POST, PUT"),)

log = structlog.get_logger()


class Cycle(RequestResponseCycle):
    """One request and its answer. It ends with one complete answer, or the connection closes.

    `refusal` is the reason why the rest of the request cannot be read. Then it is the answer, unless the handler does
    not need the rest. A refusal never overtakes the answer to an earlier request.
    """

    refusal: Problem | None = None

    async def run_asgi(self, app: Any) -> None:
        """Answer the request."""
        try:
            refused: Any = answer_problem(self.refusal) if self.refusal is not None else None
            await super().run_asgi(refused or app)
        finally:
            if not self.response_complete:
                self.transport.abort()  # the caller learns that the outcome is unknown, and may repeat

    async def receive(self) -> Any:
        """Return the next part of the body. Raises Problem if it cannot be read."""
        if self.refusal is None:
            message = await super().receive()
        if self.refusal is not None:
            raise self.refusal
        return message

    async def send(self, message: Any) -> None:
        """Send the next part of the answer."""
        if self.waiting_for_100_continue and self.more_body:
            # Nothing has requested the body, so the caller may omit it: the next bytes may be a body or a request.
            self.keep_alive = False
        await super().send(message)

    async def send_500_response(self) -> None:
        """Ignore the error: the log has it, and `run_asgi` closes the connection."""


class Protocol(HttpToolsProtocol):
    """One connection. A head that is too large gets 431. A head or body that is incomplete in time closes the
    connection.

    Both times count from the first byte, however slowly the others arrive. They also end the body of a request that was
    refused before, for which no handler waits.

    A callback of the parser raises Problem for a mistake of the caller. Every other exception in a callback is a defect
    of this process: the connection closes without an answer.
    """

    cycle: Cycle
    config: Config
    _in_head = True
    _in_body = False
    _in_message = False  # a head has begun, and its body has not ended
    _offers_upgrade = False
    _ended = False  # the remaining bytes of this connection are not parsed
    _head_bytes = 0  # bytes of the current head, without the chunk in which it began
    _chunk = 0
    _framing_bytes = 0  # bytes since the last byte of the body: sizes of chunks, their extensions, trailers
    _deadline: asyncio.TimerHandle | None = None
    _answer_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        waiting = self.config.waiting
        if len(self.connections) > self.config.most_connections and waiting:
            next(iter(waiting)).transport.abort()  # close the oldest, so that an idle caller excludes nobody
        waiting[self] = None
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.waiting.pop(self, None)
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._ended or self.transport.is_closing():
            return
        was_in_head = self._in_head
        self._chunk = len(data)
        if self._in_body:
            self._framing_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, Problem):
                self._refuse(error.__context__)
            else:
                self._ended = True
                self.transport.abort()
                log.exception("request_not_read")  # at last, because without memory this raises too
            return
        except httptools.HttpParserError as error:
            self._refuse(Problem("invalid", f"This is not HTTP/1.1: {error}."))
            return
        if self._in_head:
            if was_in_head:
                self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(_head_too_large())
            elif self._deadline is None:
                self._wait_for_head()
        elif self._in_body:
            if self._framing_bytes > HEAD_BYTES:
                detail = f"Chunk extensions and trailers may have at most {HEAD_BYTES} bytes."
                self._refuse(Problem("invalid", detail))
            elif self._deadline is None:
                self._deadline = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def _parse(self, data: bytes) -> None:
        """Parse bytes. An offer to change the protocol is ignored (RFC 9110, section 7.8).

        The parser takes such a head for the end of HTTP and skips the body. Therefore a new parser reads the head
        again, without the offer, and then the body.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._offers_upgrade = False
                head, data = self._head_without_offer(), data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                # As in uvicorn: neither an error nor a request.
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)
            else:
                return

    def _head_without_offer(self) -> bytes:
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unset_keepalive_if_required()
        self._in_head = self._in_message = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # fields after a body (a trailer) describe no request
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.config.waiting.pop(self, None)
        if self._deadline is not None:
            self._stop_waiting()
        # Adding up the headers costs time, so it is done only if they may be too many.
        if self._head_bytes + self._chunk > HEAD_BYTES and self._size_of_head() > HEAD_BYTES:
            raise _head_too_large()
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Problem("invalid", "This is not HTTP/1.1.")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Problem("method-not-allowed", "This is not a proxy: it does not support CONNECT.", headers=ALLOW)
            self._offers_upgrade = True
            return
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
            self.expect_100_continue = False  # HTTP/1.0 has no interim answer, and would take it for the answer itself
        try:
            url = httptools.parse_url(self.url)
            raw_path = url.path or b"/"  # "http://host" has no path
            path = raw_path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            raise Problem("invalid", "The target of this request is not a path.") from None
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = raw_path
        scope["query_string"] = url.query or b""
        self._begin(keep_alive=version == "1.1" and self.parser.should_keep_alive(), app=self.app)
        self._in_body = True
        self._framing_bytes = 0

    def _begin(self, *, keep_alive: bool, app: Any) -> None:
        """Begin to answer the request of `scope`, after the requests before it."""
        earlier: Cycle | None = self.cycle
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        if len(body) >= LARGE:
            need_room(0)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers_upgrade:
            return  # the same head follows again, and then the body
        self._in_body = self._in_message = False
        if self._deadline is not None:
            self._stop_waiting()
        super().on_message_complete()
        if not self.parser.should_keep_alive():  # a trailer may declare it too: the parser reads no further request
            self.cycle.keep_alive = False
        if not self.cycle.response_complete:
            return
        if self.cycle.keep_alive:
            self._wait_for_request()
        else:
            self.transport.close()
            self._wait_for_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._wait_for_reader()
        elif self._in_message:
            self._unset_keepalive_if_required()
        elif not self.pipeline:
            self.config.waiting[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_deadline is not None and not self.transport.is_closing():
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # closing it would wait for a caller that does not read
        else:
            super().timeout_keep_alive_handler()

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse(self, problem: Problem) -> None:
        """Answer unreadable bytes after the answers to earlier requests, then close the connection."""
        self._ended = True
        self._stop_waiting()
        if not self._in_body:
            self.scope = {"type": "http", "method": "GET"}  # type: ignore[typeddict-item] # only for the answer
            self.expect_100_continue = False
            self._begin(keep_alive=False, app=answer_problem(problem))
        elif self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.refusal = problem
            self.cycle.keep_alive = False
            self.cycle.message_event.set()

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _wait_for_request(self) -> None:
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.config.waiting[self] = None
            after = self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(after, self.timeout_keep_alive_handler)

    def _wait_for_reader(self) -> None:
        if self._answer_deadline is None:
            self._answer_deadline = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _head_too_large() -> Problem:
    detail = f"The head of the request has more than {HEAD_BYTES} bytes. Send shorter headers or a shorter path."
    return Problem("head-too-large", detail)


class Config(uvicorn.Config):
    """The state of uvicorn, and the state that all connections of a server share."""

    def __init__(self, app: Any, most_connections: int, **options: Any) -> None:
        super().__init__(
            app, http=Protocol, ws="none", access_log=False, proxy_headers=False, log_config=None, **options
        )
        self.most_connections = most_connections
        #: The connections without a complete head, the longest waiting first.
        self.waiting: dict[Protocol, None] = {}


class Server(uvicorn.Server):
    """uvicorn's server, stopped by `stop`. Its caller handles the signals."""

    config: Config

    def __init__(self, config: Config, on_stop: Callable[[], object]) -> None:
        """`on_stop` is called first when the server stops. It answers the requests that wait for messages."""
        super().__init__(config)
        self._on_stop = on_stop

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `stop`. Raises ConfigError if the address cannot be listened on."""
        sockets = sockets or listen(self.config.host, self.config.port, "DELAYQ_API_PORT")
        try:
            await super().serve(sockets)
        finally:
            for one in sockets:
                one.close()

    def stop(self) -> None:
        """Finish the current requests, then return from `serve`. A second call does not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        log.info("api_started", address=shown(self.config.host, self.config.port))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, and finish the current ones."""
        log.info("api_stopping")
        self._on_stop()
        await super().shutdown(sockets)
        log.info("api_stopped")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals unchanged: they are handled before there is a server."""
        yield


def make_server(app: Any, settings: Settings, on_stop: Callable[[], object]) -> Server:
    """Return the server of an ASGI application. `on_stop` is that of `Server`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    config = Config(
        app,
        max(SPARE_FILES, files - SPARE_FILES) if files != resource.RLIM_INFINITY else sys.maxsize,
        host=settings.api_host,
        port=settings.api_port,
        loop="uvloop",
        lifespan="on",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config, on_stop)
