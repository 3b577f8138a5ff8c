"""Handlers that run at once, and a repeated step, for asyncio; `threads` has the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from delayq.base.clock import Clock
from delayq.store.connect.event_loop import pause

#: Why a repeated step may begin late.
LATE: Final = "the event loop was blocked; let asyncio.to_thread call what blocks"
_ENDING: Final[set[asyncio.Task[None]]] = set()  # the loop itself refers to its tasks only weakly


class Handlers:
    """Runs at most so many handlers at once, as tasks of this event loop.

    `failure` is an exception that ends the program (SystemExit, KeyboardInterrupt), if a handler raised one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: set[asyncio.Future[None]] = set()
        self.failure: BaseException | None = None

    async def wait_for_room(self) -> None:
        """Wait until fewer than the most handlers run."""
        while len(self._running) >= self._most:
            await self.wait(None)

    def start(self, handle: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a handler."""
        task = asyncio.ensure_future(handle(*args))
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error

    async def wait(self, seconds: float | None) -> None:
        """Wait until a handler has ended, or for so many seconds."""
        if self._running:
            _, self._running = await asyncio.wait(self._running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Wait until all handlers have ended."""
        while self._running:
            await self.wait(None)


class Repeats:
    """Awaits `step` again and again in a task of its own; each step returns the ms until the next one.

    A step raises nothing. `last` ends everything when the caller is forgotten.
    """

    def __init__(self, _clock: Clock, step: Callable[[], Awaitable[int]], last: Callable[[], Awaitable[None]]) -> None:
        self._step = step
        self._last = last
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_abandoned = False

    @property
    def is_running(self) -> bool:
        """Whether the task runs."""
        return self._task is not None and not self._task.done()

    def start(self, first: int) -> None:
        """Begin after so many ms, unless it was stopped."""
        if not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run(first))

    async def _run(self, ms: int) -> None:
        while True:
            await pause(ms / 1000)
            ms = await self._step()

    def stop(self) -> None:
        """Begin no further step."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and wait until it has ended."""
        self.stop()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    def abandon(self) -> None:
        """Await `last` in the background; from any thread."""
        if self._task is not None and not self._is_stopped:
            self._is_abandoned = True
            with suppress(RuntimeError):  # the loop is closed
                self._task.get_loop().call_soon_threadsafe(self._begin_last)

    def _begin_last(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())
            _ENDING.add(self._ending)
            self._ending.add_done_callback(_ENDING.discard)

    async def _end(self) -> None:
        await self._last()

    async def wait_if_abandoned(self) -> None:
        """Wait until `last` has returned, if it was begun."""
        if self._is_abandoned:
            self._begin_last()
            assert self._ending is not None
            await asyncio.wait([self._ending])
