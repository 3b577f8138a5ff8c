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
from delayq.base.json_text import encode

__all__ = ["JSON", "Answer", "Handler", "Request", "Resource", "answer_problem", "encode"]

JSON: Final[Headers] = ((b"content-type", b"application/json"),)
_PROBLEM: Final[Headers] = ((b"content-type", b"application/problem+json"),)
#: Headers of every answer.
_SECURITY: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)

#: The seconds that the rest of a body may take after its head.
BODY_SECONDS: Final = 30.0

_log = structlog.get_logger("api")
_now = time.perf_counter  # latencies are below the ms of delayq.base.clock


class Request(starlette.requests.Request):
    """A request with its `caller`, which may make it."""

    def __init__(self, scope: Scope, receive: Receive, caller: Caller = ANYBODY) -> None:
        super().__init__(scope, receive)
        self.caller = caller

    def query(self, *names: str) -> dict[str, str]:
        """Return the query, which may have each of `names` once and nothing else."""
        try:
            text = self.scope["query_string"].decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError:
            raise Problem("invalid", "The query is not percent-encoded UTF-8. Encode it.") from None
        given = dict(pairs)
        for name, _ in pairs:
            if name not in names:
                known = f"; this path accepts {' and '.join(names)}" if names else "; this path accepts none"
                raise Problem("invalid", f"{name}: unknown parameter{known}.", field=name)
        if len(given) < len(pairs):
            name = next(name for name in given if [one for one, _ in pairs].count(name) > 1)
            raise Problem("invalid", f"{name}: give the parameter once.", field=name)
        return given

    async def json_text(self, limit: int) -> bytes:
        """Return the body of a JSON request. Refuse it as soon as it has more than `limit` bytes."""
        is_json = False
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                is_json = value == b"application/json" or _is_json(value)
            elif name == b"content-length":
                if not value.isdigit() or len(value) > 18 or int(value) > limit:
                    raise _too_large(limit)
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise Problem("unsupported", "Content-Encoding is not supported. Send the body uncompressed.")
        if not is_json:  # the same check keeps pages of other sites in a browser from posting here
            raise Problem(
                "unsupported", "The body must be JSON. Send it with the header Content-Type: application/json."
            )
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body") or message["type"] != "http.request":
            # A timer costs as much as the rest, so only incomplete bodies have one.
            body = await self._rest(message, limit)
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
            raise Problem(
                "timeout", f"The body did not arrive in time. Send it within {BODY_SECONDS:.0f} s.", headers=close
            ) from None


def _is_json(content_type: bytes) -> bool:
    media = content_type.partition(b";")[0].strip().lower()
    return media == b"application/json" or (media.startswith(b"application/") and media.endswith(b"+json"))


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"The request has more than {limit} bytes. Send less, or several batches.")


class Answer(Response):
    """A response with encoded headers, and the headers of every answer.

    `caching` is the Cache-Control header. A body of None means no body, as for 204 and 304.
    """

    def __init__(self, status: int, body: bytes | None, headers: Headers = JSON, caching: bytes = b"no-store") -> None:
        self.status_code = status
        self.body = body or b""
        self.background = None
        self.raw_headers = [*headers, *_SECURITY, (b"cache-control", caching)]
        if body is not None:
            self.raw_headers.append((b"content-length", b"%d" % len(body)))


def answer_problem(problem: Problem) -> Answer:
    """Return the problem as an answer."""
    return Answer(problem.out.status, encode(problem.out), _PROBLEM + problem.headers)


Handler = Callable[[Request], Awaitable[Answer]]


class Resource:
    """All methods of one path, as an ASGI application."""

    def __init__(self, path: str, metrics: Metrics, door: Door) -> None:
        self.path = path
        self._metrics = metrics
        self._door = door
        self._handlers: dict[str, Handler] = {}
        self._open: set[str] = set()  # methods that need no key

    def add(self, method: str, handler: Handler, *, open: bool = False) -> None:
        """Serve a method; `open` needs no key. GET also serves HEAD."""
        for one in (method, "HEAD") if method == "GET" else (method,):
            self._handlers[one] = handler
            if open:
                self._open.add(one)

    @property
    def methods(self) -> list[str]:
        """Return the methods that the path serves."""
        return list(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = _now()
        method = scope["method"]
        handler = self._handlers.get(method)
        try:
            if handler is None:
                allow = ", ".join(sorted(self._handlers)).encode()
                detail = f"Method not allowed. This path accepts {allow.decode()}."
                raise Problem("method-not-allowed", detail, headers=((b"allow", allow),))
            caller = self._door.guest(scope) if method in self._open else self._door.enter(scope, self.path)
            answer = await handler(Request(scope, receive, caller))
        except starlette.requests.ClientDisconnect:
            return  # the caller went away before the end of its request, so nobody reads an answer
        except Exception as error:
            problem = problem_of(error)
            if problem.out.status == 500:
                _log.exception("request_failed", path=self.path, method=method)
            answer = answer_problem(problem)
        self._metrics.request(self.path, method if handler else "other", answer.status_code, _now() - began)
        await answer(scope, receive, send)
