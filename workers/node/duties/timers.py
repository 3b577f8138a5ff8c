"""The timers of a node's duties, which one thread runs in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from coordinator import CoordinatorError
from delayq.base.clock import Clock
from delayq.base.errors import StoreError, StoreUnavailable

log = structlog.get_logger()


class Timer:
    """Runs a duty once in `ms`, for the first time after `first` ms, or `sooner` if that returns True.

    Belongs to the node's thread. The next time is set before the duty runs, so a duty that fails is not repeated at once.
    """

    def __init__(
        self,
        clock: Clock,
        ms: int,
        duty: Callable[[], None],
        *,
        first: int = 0,
        sooner: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._ms = ms
        self._duty = duty
        self._sooner = sooner
        self._at = clock.monotonic() + first

    def run(self) -> None:
        """Run the duty if it is time; raises what the duty raises."""
        now = self._clock.monotonic()
        if now >= self._at or self._sooner():
            self._at = now + self._ms
            self._duty()


def run_timers(timers: Iterable[Timer]) -> None:
    """Run each duty for which it is time. A duty that fails does not keep the others from running, unless Redis is away."""
    for timer in timers:
        try:
            timer.run()
        except CoordinatorError as error:
            log.warning("coordinator_trouble", error=str(error))
        except StoreError as error:
            log.warning("redis_trouble", error=str(error))
            if isinstance(error, StoreUnavailable):
                return  # each of the other duties might wait for the same server
        except Exception:
            log.exception("round_failed")
