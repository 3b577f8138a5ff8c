"""Retry while Redis is unreachable or full, for a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from delayq.base.clock import Clock, pause
from delayq.base.errors import DelayqError, StoreError, StoreFull, StoreUnavailable

T = TypeVar("T")
#: The waits before each further attempt, in ms; the last one repeats.
PAUSES: Final = (100, 300, 1_000, 2_000, 5_000)


class GivenUp(DelayqError):
    """A task could not continue. Its scheduled messages stay, and a rerun completes the rest."""


class Patience:
    """One wait for Redis: at most `retry_for` ms without any progress. Begin a new one for each operation."""

    def __init__(self, clock: Clock, retry_for: int) -> None:
        self._clock = clock
        self._retry_for = retry_for
        self.progress()

    def progress(self) -> None:
        """A step succeeded: the time starts again."""
        self._since = self._clock.monotonic()
        self._tries = 0

    def bear(self, error: StoreError) -> None:
        """Wait before the next attempt. Raises GivenUp if that is useless, or took too long."""
        if not isinstance(error, (StoreUnavailable, StoreFull)):
            raise GivenUp(f"Redis refuses the command: {error}") from None
        waited = self._clock.monotonic() - self._since
        if waited >= self._retry_for:
            raise GivenUp(
                f"{error}; this task gave up after {waited / 1000:.0f} s without progress (option retryFor). What it had "
                "scheduled stays; run the same job again to complete it, nothing is scheduled twice"
            ) from None
        pause(self._clock, min(PAUSES[min(self._tries, len(PAUSES) - 1)], self._retry_for - waited))
        self._tries += 1

    def through(self, step: Callable[[], T]) -> T:
        """Return the result of `step`. Raises GivenUp."""
        while True:
            try:
                return step()
            except StoreError as error:
                self.bear(error)
