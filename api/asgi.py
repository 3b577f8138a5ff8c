"""Requests (with their authenticated caller), responses, and the dispatch by method."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

import starlette.requests
import structlog
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.auth.caller import ANYBODY, Caller
from api.auth.keys_file import Door
from api.memory import LARGE, need_room
from api.metrics import Metrics
from api.wire.problems import Headers, Problem, problem_of
from delayq.json_text import encode

__all__ = ["JSON", "Answer", "Handler", "Request", "Resource", "answer_problem", "encode"]

JSON: Final[Headers] = ((b"content-type", b"application/json"),)
_PROBLEM: Final[Headers] = ((b"content-type", b"application/problem+json"),)
#: On every answer.
_SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)

#: How long the rest of a body may take that did not come with its head, in seconds.
BODY_SECONDS: Final = 30.0

_log = structlog.get_logger("api")
_now = time.perf_counter  # latencies are below the ms of delayq.clock


class Request(starlette.requests.Request):
    """A request of somebody who may make it: a `caller`."""

    def __init__(self, scope: Scope, receive: Receive, caller: Caller = ANYBODY) -> None:
        super().__init__(scope, receive)
        self.caller = caller

    def query(self, *names: str) -> dict[str, str]:
        """The query, which may give each of `names` once and nothing else."""
        try:
            text = self.scope["query_string"].decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise Problem("invalid", "The query is not percent-encoded UTF-8.") from None
        given = dict(pairs)
        for name, _ in pairs:
            if name not in names:
                known = f"; this path takes {' and '.join(names)}" if names else "; this path takes none"
                raise Problem("invalid", f"{name}: there is no such parameter{known}.", field=name)
        if len(given) < len(pairs):
            name = next(name for name in given if [one for one, _ in pairs].count(name) > 1)
            raise Problem("invalid", f"{name}: give it once.", field=name)
        return given

    async def json_text(self, limit: int) -> bytes:
        """The body, of a request that says it is JSON; refused as soon as it is more than `limit` bytes."""
        is_json = False
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                is_json = value == b"application/json" or _is_json(value)
            elif name == b"content-length":
                if not value.isdigit() or len(value) > 18 or int(value) > limit:
                    raise _too_large(limit)
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise Problem("unsupported", "Send the body as it is, without Content-Encoding.")
        if not is_json:  # also what keeps other sites' pages in a browser from posting here
            raise Problem("unsupported", "Send JSON, with the header Content-Type: application/json.")
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body") or message["type"] != "http.request":
            body = await self._rest(message, limit)  # a timer costs as much as all the rest, so only here there is one
        if len(body) > limit:
            raise _too_large(limit)
        if len(body) >= LARGE:
            try:
                need_room(len(body))
            except MemoryError:
                detail = "The API has too little memory for a request of this size; nothing was done. Repeat later."
                raise Problem("overloaded", detail) from None
        return body

    async def _rest(self, message: Message, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    if message["type"] != "http.request":
                        raise starlette.requests.ClientDisconnect
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise _too_large(limit)
                    if not message.get("more_body"):
                        return b"".join(parts)
                    message = await self.receive()
        except TimeoutError:
            close = ((b"connection", b"close"),)
            raise Problem("timeout", f"Send the whole body within {BODY_SECONDS:.0f} s.", headers=close) from None


def _is_json(content_type: bytes) -> bool:
    media = content_type.partition(b";")[0].strip().lower()
    return media == b"application/json" or (media.startswith(b"application/") and media.endswith(b"+json"))


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"A request has at most {limit} bytes; send less, or several batches.")


class Answer(Response):
    """A response whose headers are bytes already, with those that every answer has.

    `caching` says who may keep it. A body that is None is none at all, as 204 and 304 have it.
    """

    def __init__(self, status: int, body: bytes | None, headers: Headers = JSON, caching: bytes = b"no-store") -> None:
        self.status_code = status
        self.body = body or b""
        self.background = None
        self.raw_headers = [*headers, *_SECURITY, (b"cache-control", caching)]
        if body is not None:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))


def answer_problem(problem: Problem) -> Answer:
    """The problem as an answer."""
    return Answer(problem.out.status, encode(problem.out), _PROBLEM + problem.headers)


Handler = Callable[[Request], Awaitable[Answer]]


class Resource:
    """All methods of one path, as an ASGI application."""

    def __init__(self, path: str, metrics: Metrics, door: Door) -> None:
        self.path = path
        self._metrics = metrics
        self._door = door
        self._handlers: dict[str, Handler] = {}
        self._open: set[str] = set()  # methods that take no key

    def add(self, method: str, handler: Handler, *, open: bool = False) -> None:
        """Serve a method, `open` to anybody; GET serves HEAD, too."""
        for one in (method, "HEAD") if method == "GET" else (method,):
            self._handlers[one] = handler
            if open:
                self._open.add(one)

    @property
    def methods(self) -> list[str]:
        """Those that it serves."""
        return list(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = _now()
        method = scope["method"]
        handler = self._handlers.get(method)
        try:
            if handler is None:
                allow = ", ".join(sorted(self._handlers)).encode()
                detail = f"This path takes {allow.decode()}."
                raise Problem("method-not-allowed", detail, headers=((b"allow", allow),))
            caller = self._door.guest(scope) if method in self._open else self._door.enter(scope, self.path)
            answer = await handler(Request(scope, receive, caller))
        except starlette.requests.ClientDisconnect:
            return  # it had not sent its whole request, and there is nobody to answer
        except Exception as error:
            problem = problem_of(error)
            if problem.out.status == 500:
                _log.exception("request_failed", path=self.path, method=method)
            answer = answer_problem(problem)
        self._metrics.request(self.path, method if handler else "other", answer.status_code, _now() - began)
        await answer(scope, receive, send)
