"""What the handlers share, and how each of them is told of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api.asgi import Answer, Request
from api.auth.keys_file import Door
from api.auth.quotas import Quotas
from api.metrics import Metrics
from api.readiness import Readiness
from delayq import AsyncClient, Settings
from delayq.client import operations
from delayq.clock import SystemClock

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["Handle", "Operation", "Operations", "Service"]


class Service:
    """One API process: its client of the store, and its numbers."""

    def __init__(self, settings: Settings, tracer_provider: TracerProvider | None = None) -> None:
        self.settings = settings
        self.limits = settings.limits()
        self.tracer_provider = tracer_provider
        self.client = AsyncClient(settings=settings, tracer_provider=tracer_provider)
        self.metrics = Metrics()
        self.readiness = Readiness(self.client, settings)
        self.client.group.taken = self.metrics.flushes.add
        self.metrics.waiting = lambda: self.client.group.waiting
        self.clock = SystemClock()
        self.door = Door(settings, self.clock)
        self.metrics.keys_stale = lambda: bool(self.door.stale)
        self.quotas = Quotas(self._carrying, self.clock)

    async def _carrying(self, key: str) -> int:
        """How many messages carry a business key."""
        return await self.client.read(lambda context: operations.count(context, key))

    async def close(self) -> None:
        """Let what is on its way arrive, then close the connections."""
        await self.client.close()


Handle = Callable[[Service, Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Operation:
    """A handler, and what the documentation says of it.

    `takes` is the type of the body and `example` one; `gives` the type of each good answer's body (None: text),
    `problems` the statuses of the bad ones, `query` the parameters with their schemas. `open`: it takes no key.
    """

    method: str
    path: str
    handle: Handle
    takes: type | None = None
    example: Any = None
    gives: dict[int, type | None] = field(default_factory=dict)
    problems: tuple[int, ...] = ()
    query: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: bool = False


class Operations(list[Operation]):
    """The operations of one file, in the order of the documentation."""

    def add(self, method: str, path: str, **documentation: Any) -> Callable[[Handle], Handle]:
        """Decorates a handler."""

        def decorate(handle: Handle) -> Handle:
            self.append(Operation(method, path, handle, **documentation))
            return handle

        return decorate
