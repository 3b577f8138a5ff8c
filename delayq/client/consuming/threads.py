"""Handlers that run at once, and a repeated step, in threads; `event_loop` has the same for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final

from delayq.base.clock import Clock

#: Why a repeated step may begin late.
LATE: Final = "the process or its machine was stopped"


class Handlers:
    """Runs at most so many handlers at once, each in a thread.

    `failure` is an exception that ends the program (SystemExit, KeyboardInterrupt), if a handler raised one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = ThreadPoolExecutor(most, "delayq-handler")
        self._running: set[Future[None]] = set()
        self.failure: BaseException | None = None

    def wait_for_room(self) -> None:
        """Wait until fewer than the most handlers run."""
        while len(self._running) >= self._most:
            self.wait(None)

    def start(self, handle: Callable[..., None], *args: Any) -> None:
        """Start a handler."""
        future = self._threads.submit(handle, *args)
        self._running.add(future)
        future.add_done_callback(self._ended)

    def _ended(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None and not isinstance(error, asyncio.CancelledError):  # as for tasks
            self.failure = error

    def wait(self, seconds: float | None) -> None:
        """Wait until a handler has ended, or for so many seconds."""
        _, self._running = wait(self._running, seconds, FIRST_COMPLETED)

    def close(self) -> None:
        """Wait until all handlers have ended."""
        self._threads.shutdown()


class Repeats:
    """Calls `step` again and again in a thread of its own; each step returns the ms until the next one.

    A step raises nothing. `last` ends everything when the caller is forgotten.
    """

    def __init__(self, clock: Clock, step: Callable[[], int], last: Callable[[], None]) -> None:
        self._clock = clock
        self._step = step
        self._last = last
        # Reentrant, because a finalizer may run in a thread that has it.
        self._condition = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._is_abandoned = False

    @property
    def is_running(self) -> bool:
        """Whether the thread runs; after a fork it does not."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, first: int) -> None:
        """Begin after so many ms, unless it was stopped."""
        with self._condition:
            if not self._is_stopped and not self.is_running:
                # A daemon, because a consumer that nobody ended must not keep the process alive.
                self._thread = threading.Thread(target=self._run, args=(first,), name="delayq-leases", daemon=True)
                self._thread.start()

    def _run(self, ms: int) -> None:
        while self._wait(ms):
            ms = self._step()
        if self._is_abandoned:
            self._last()

    def _wait(self, ms: int) -> bool:
        """Wait, and return False if it was stopped."""
        end = self._clock.monotonic() + ms
        with self._condition:
            while not self._is_stopped and (left := end - self._clock.monotonic()) > 0:
                self._clock.wait(self._condition, left)
            return not self._is_stopped

    def stop(self) -> None:
        """Begin no further step."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()

    def close(self) -> None:
        """Stop, and wait until it has ended."""
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def abandon(self) -> None:
        """Call `last` in the background; from any thread."""
        self._is_abandoned = not self._is_stopped
        self.stop()

    def wait_if_abandoned(self) -> None:
        """Wait until `last` has returned, if it was begun."""
        if self._is_abandoned and self._thread is not None:
            self._thread.join()
