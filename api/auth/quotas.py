"""Quotas: how many messages of a key's name may wait.

Every message of a name with a quota has a reserved key of that name, which the scripts index like any other key. Redis
therefore knows their number at any moment, whoever delivered or cancelled some. Each process counts at most once per
second, and adds the messages that it schedules meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from api.auth.caller import Caller
from api.wire.problems import RETRY_AFTER, Problem
from delayq.base.clock import Clock
from delayq.domain.message import from_key

#: ms between two counts for a name.
COUNT_EVERY: Final = 1_000


@dataclass(slots=True)
class _Count:
    used: int = 0
    at: int | None = None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Quotas:
    """The remaining quotas. `count` counts the messages with a business key in Redis."""

    def __init__(self, count: Callable[[str], Awaitable[int]], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._counts: dict[str, _Count] = {}  # by name: as many as the file of keys has

    async def take(self, caller: Caller, wanted: int) -> int:
        """Return how many of `wanted` messages fit into the quota, and count them as scheduled. Raises StoreError."""
        key, quota = caller.key, caller.quota
        if key is None or quota is None:
            return wanted
        now = self._clock.monotonic()
        count = self._counts.setdefault(key.name, _Count())
        if count.at is None or now - count.at >= COUNT_EVERY:
            async with count.asking:  # other requests wait for this answer
                if count.at is None or now - count.at >= COUNT_EVERY:
                    count.used = await self._count(from_key(key.name))
                    count.at = self._clock.monotonic()
        room = max(0, min(wanted, quota - count.used))
        count.used += room
        return room

    @staticmethod
    def full(caller: Caller) -> Problem:
        """Return the problem of a message that exceeds the quota."""
        detail = f"At most {caller.quota:,} messages of this key may wait or be dead letters. Cancel some, or wait."
        return Problem("quota", detail, retry_after=RETRY_AFTER)
