"""A worker with one more target, `null:`, which accepts every message and does nothing with it.

`null:50` takes 50 ms for each message, and one message at a time. With WITHOUT_CENSUS in the environment the worker takes no
census, to measure the cost of one.
"""

from __future__ import annotations

import os
import runpy
import time
from collections.abc import Sequence

from delayq.domain.routes import Route
from delayq.targets import OK, Delivery, Result, register_target


class NullTarget:
    """Accepts every message."""

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self.latency = int(url.partition(":")[2] or 0) / 1_000
        self.max_batch = 1 if self.latency else 500

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Accept the batch."""
        if self.latency:
            time.sleep(self.latency)
        return [OK] * len(batch)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _take_no_census() -> None:
    from workers.queue.queue_context import Pace

    setattr(Pace, "take", lambda _pace: False)  # noqa: B010  # mypy rejects the plain assignment


if __name__ == "__main__":
    register_target("null", NullTarget)
    if "WITHOUT_CENSUS" in os.environ:
        _take_no_census()
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
