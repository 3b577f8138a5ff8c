"""A question to Redis that several checks have."""

from __future__ import annotations

from delayq.store import commands
from delayq.store.connect.store import Store

__all__ = ["redis_now"]


def redis_now(store: Store) -> int:
    """The time of Redis, Unix ms; raises StoreError."""
    return store.run(commands.redis_now())
