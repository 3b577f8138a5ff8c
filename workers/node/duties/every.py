"""The timer of a duty: what a node does again and again."""

from __future__ import annotations

from collections.abc import Callable

from delayq.clock import Clock

__all__ = ["Every"]


class Every:
    """Calls `look` once in `ms`, for the first time after `first` ms, or `sooner` if that returns True.

    Belongs to the node's thread. The next call is set before `look` runs, so a duty that fails is not tried at once.
    """

    def __init__(
        self,
        clock: Clock,
        ms: int,
        look: Callable[[], None],
        *,
        first: int = 0,
        sooner: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._ms = ms
        self._look = look
        self._sooner = sooner
        self._at = clock.monotonic() + first

    def run(self) -> None:
        """Call `look` if it is time; raises what that raises."""
        now = self._clock.monotonic()
        if now >= self._at or self._sooner():
            self._at = now + self._ms
            self._look()
