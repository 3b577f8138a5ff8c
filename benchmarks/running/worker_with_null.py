"""A worker that knows one target more, `null:`, which takes everything and does nothing with it. `null:50` takes 50 ms, and
one message at a time."""

from __future__ import annotations

import runpy
import time
from collections.abc import Sequence

from delayq.routes import Route
from delayq.targets import OK, Delivery, Result, register_target

__all__ = ["NullTarget"]


class NullTarget:
    """Says ok."""

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self.latency = int(url.partition(":")[2] or 0) / 1_000
        self.max_batch = 1 if self.latency else 500

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Take the batch."""
        if self.latency:
            time.sleep(self.latency)
        return [OK] * len(batch)

    def close(self) -> None:
        """Nothing to let go."""


if __name__ == "__main__":
    register_target("null", NullTarget)
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
