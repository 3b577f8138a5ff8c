"""How a node treats its messages: what the settings say of windows, attempts and back-offs."""

from __future__ import annotations

import msgspec

from workers.sending.backoff import Backoff

__all__ = ["Policy"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a node treats its messages; counts are messages, times ms.

    A queue has at most `window` messages of `window_bytes` in flight; a route has its share of both.
    """

    window: int = 2_000
    window_bytes: int = 32 * 1024 * 1024
    look: int = 500
    max_attempts: int = 16
    backoff: Backoff = Backoff()
    stuck_after: int = 60_000
