"""A worker that knows one target more, `null:`, which takes everything and does nothing with it."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from typing import Final

from delayq.routes import Route
from delayq.targets import OK, Delivery, Result, register_target

__all__ = ["NullTarget"]


class NullTarget:
    """Says ok."""

    max_batch: Final = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        pass

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Take the batch."""
        return [OK] * len(batch)

    def close(self) -> None:
        """Nothing to let go."""


if __name__ == "__main__":
    register_target("null", NullTarget)
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
