"""Handlers that run at once in threads; `event_loop` has the same for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

__all__ = ["Handlers"]


class Handlers:
    """Runs at most so many handlers at once, each in a thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = ThreadPoolExecutor(most, "delayq-handler")
        self._running: set[Future[None]] = set()

    def wait_for_room(self) -> None:
        """Wait until fewer than the most handlers run."""
        while len(self._running) >= self._most:
            self.wait(None)

    def start(self, handle: Callable[..., None], *args: Any) -> None:
        """Start a handler. It raises nothing."""
        self._running.add(self._threads.submit(handle, *args))

    def wait(self, seconds: float | None) -> None:
        """Wait until a handler has ended, or for so many seconds."""
        _, self._running = wait(self._running, seconds, FIRST_COMPLETED)

    def close(self) -> None:
        """Wait until all handlers have ended."""
        self._threads.shutdown()
