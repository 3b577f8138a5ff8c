"""The application: the operations on their paths, inside FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from api.asgi import Resource, answer_problem
from api.auth.keys_file import refuse_open_door
from api.auth.proxies import TrustedProxies
from api.routes import OPERATIONS, openapi
from api.routes.console import SESSION, console_handlers, route_of
from api.routes.pages import page_handlers
from api.service import Service
from api.wire import problems
from api.wire.problems import Problem
from delayq import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

#: Paths that are polled often and make no spans.
PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})


class Application(FastAPI):
    """FastAPI with a route for each path, and a shortcut past its middleware for the paths without parameters.

    Scheduling uses the shortcut. docs/decisions/0032-what-of-fastapi-is-used.md has the time that it saves.
    """

    def __init__(self, service: Service) -> None:
        self._direct: dict[str, Resource] = {}
        self._proxies = TrustedProxies(service.settings.trusted_proxies)
        super().__init__(
            title=openapi.TITLE,
            version=openapi.VERSION,
            redirect_slashes=False,
            lifespan=_lifespan,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            exception_handlers={HTTPException: _no_route, Exception: _no_route},
            telemetry={
                "tracing": service.tracer_provider is not None,
                "tracer_provider": service.tracer_provider,
                "metrics": False,
                "logs": False,
                "operation_spans": False,
                "auto_configure": False,
                "exclude": lambda scope: scope["path"] in PROBES,
            },
        )
        self.service = service
        resources: dict[str, Resource] = {}
        has_console = service.settings.console != "no"
        for operation in (*OPERATIONS, *(SESSION if has_console else ())):
            resource = resources.setdefault(operation.path, Resource(operation.path, service.metrics, service.door))
            resource.add(operation.method, partial(operation.handle, service), open=operation.open)
        pages = page_handlers(openapi.TITLE, self.openapi(), "console/" if has_console else "docs")
        for path, handle in (pages | (console_handlers() if has_console else {})).items():
            resources[path] = Resource(route_of(path), service.metrics, service.door)
            resources[path].add("GET", handle, open=True)
        # An id may end like a verb. The ending is a verb only if the method is the verb's.
        verbs = {path: one.methods for path, one in resources.items() if "}:" in path}
        for path in sorted(resources, key=lambda path: path not in verbs):
            self.router.routes.append(Route(path, resources[path], methods=verbs.get(path), include_in_schema=False))
        if service.tracer_provider is None:  # otherwise FastAPI handles every request, to make its span
            self._direct.update((path, one) for path, one in resources.items() if "{" not in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._proxies and scope["type"] == "http":
            scope["client"] = self._proxies.caller(scope)  # for the lock-out, the audit and the log
        if scope["type"] == "http" and (resource := self._direct.get(scope["path"])) is not None:
            await resource(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the document of docs/openapi.json for /docs, with this API as its server."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(OPERATIONS) | {"servers": [{"url": "."}]}
        return self.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    assert isinstance(app, Application)
    watching = asyncio.create_task(app.service.door.watch()) if not app.service.door.open else None
    yield
    if watching is not None:
        watching.cancel()
        await asyncio.wait([watching])
    await app.service.close()


async def _no_route(request: StarletteRequest, error: Exception) -> Response:
    """Handle the refusals of FastAPI itself, and its errors."""
    problem = problems.problem_of(error)
    if isinstance(error, HTTPException):
        other = "invalid" if error.status_code < 500 else "internal"
        kind = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, other)
        known = "Unknown path. /docs lists all paths."
        problem = Problem(kind, known if kind == "not-found" else str(error.detail))
    answer = answer_problem(problem)
    request.app.service.metrics.request("other", "other", answer.status_code, 0.0)
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer


def create_app(settings: Settings, tracer_provider: TracerProvider | None = None) -> Application:
    """Return the application. Raises ConfigError for invalid settings."""
    refuse_open_door(settings)
    return Application(Service(settings, tracer_provider))
