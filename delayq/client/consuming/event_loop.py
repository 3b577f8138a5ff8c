"""Handlers that run at once for asyncio; `threads` has the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["Handlers"]


class Handlers:
    """Runs at most so many handlers at once, as tasks of this event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: set[asyncio.Future[None]] = set()

    async def wait_for_room(self) -> None:
        """Wait until fewer than the most handlers run."""
        while len(self._running) >= self._most:
            await self.wait(None)

    def start(self, handle: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a handler. It raises nothing."""
        self._running.add(asyncio.ensure_future(handle(*args)))

    async def wait(self, seconds: float | None) -> None:
        """Wait until a handler has ended, or for so many seconds."""
        if self._running:
            _, self._running = await asyncio.wait(self._running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Wait until all handlers have ended."""
        while self._running:
            await self.wait(None)
