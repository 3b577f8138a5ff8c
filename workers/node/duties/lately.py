"""The node's counts of the last 15 minutes, for its line: alerts of Prometheus and findings are made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from delayq.clock import Clock
from delayq.nodes import LATELY, Lately

__all__ = ["LatelyCounts"]

STEP: Final = 60_000  # ms


class LatelyCounts:
    """Compares counters with their values 15 minutes ago, so counting costs nothing. Belongs to the node's thread.

    `counted` returns the counters since the node began. They never decrease.
    """

    def __init__(self, counted: Callable[[], Lately], clock: Clock) -> None:
        self._counted = counted
        self._clock = clock
        self._before = deque([Lately()], maxlen=LATELY // STEP + 1)
        self._step_at = clock.monotonic() + STEP

    def tick(self) -> None:
        """Keep the values of the counters, once a minute."""
        now = self._clock.monotonic()
        if now < self._step_at:
            return
        steps = (now - self._step_at) // STEP + 1
        self._step_at += steps * STEP
        self._before.extend([self._counted()] * min(steps, LATELY // STEP + 1))

    def sum(self) -> Lately:
        """The counts of the last 15 minutes, or since the node began."""
        old, new = msgspec.structs.astuple(self._before[0]), msgspec.structs.astuple(self._counted())
        return Lately(*(after - before for before, after in zip(old, new, strict=True)))
