"""The back-off between two attempts: exponential, with a cap and jitter."""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Back-off in ms: `base` after the first failure, doubling, at most `cap`.

    The jitter spreads each delay over its upper half. So messages that failed together are not retried together, and none is
    retried at once. M. Brooker calls this 'equal jitter' (AWS Architecture Blog, 2015).
    """

    base: int = 1_000
    cap: int = 600_000

    def delay(self, failed: int) -> int:
        """The ms to wait after `failed` attempts, which is at least 1."""
        full: int = min(self.cap, self.base * 2 ** min(failed - 1, 40))
        return max(1, full // 2 + random.randint(0, full - full // 2))
