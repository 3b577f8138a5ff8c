"""Single messages that arrive together go to Redis together: one plan, its scripts pipelined, an outcome for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from api.wire.problems import Problem
from delayq import DelayqError, Message, Scheduled
from delayq.telemetry.histogram import Histogram

__all__ = ["GroupCommit"]

Outcome = Scheduled | DelayqError
ScheduleMany = Callable[[Sequence[Message]], Awaitable[Sequence[Outcome]]]

#: Trips under way at once. While the first is, messages gather; a second starts when many have.
FLIGHTS: Final = 2
MANY: Final = 100
#: What one trip takes along, and what may wait; each in messages and in bytes.
MOST: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024
WAITING: Final = 10_000
WAITING_BYTES: Final = 64 * 1024 * 1024


class _Waiting(NamedTuple):
    message: Message
    size: int
    outcome: asyncio.Future[Outcome]


class GroupCommit:
    """Gathers messages while a trip to Redis is under way; the next trip takes all of them."""

    def __init__(self, schedule_many: ScheduleMany, flushes: Histogram) -> None:
        self._schedule_many = schedule_many
        self._flushes = flushes
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._under_way = 0
        self._flights: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def schedule(self, message: Message, size: int) -> asyncio.Future[Outcome]:
        """What becomes of the message; `size` is about what it takes in memory. Raises Problem when too much waits."""
        if len(self._waiting) >= WAITING or self._bytes >= WAITING_BYTES:
            detail = "Too much waits for Redis, and this message was not taken. Repeat later, or send batches."
            raise Problem("overloaded", detail)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append(_Waiting(message, size, outcome))
        self._bytes += size
        if not self._under_way or (self._under_way < FLIGHTS and len(self._waiting) >= MANY):
            # The task runs after the requests that this turn of the loop has read, and takes them along.
            self._under_way += 1
            task = loop.create_task(self._fly())
            self._flights.add(task)
            task.add_done_callback(self._flights.discard)
        return outcome

    async def _fly(self) -> None:
        try:
            while self._waiting:
                await self._trip()
        finally:
            # In the very step that saw nothing waiting: whoever comes next must see that nobody flies.
            self._under_way -= 1

    async def _trip(self) -> None:
        group = self._take()
        self._flushes.add(len(group))
        try:
            outcomes = await self._schedule_many([one.message for one in group])
        except Exception as error:
            for one in group:
                if not one.outcome.done():
                    one.outcome.set_exception(error)
        else:
            for one, outcome in zip(group, outcomes, strict=True):
                if not one.outcome.done():  # its request was cancelled
                    one.outcome.set_result(outcome)

    def _take(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._waiting and len(group) < MOST and size < MOST_BYTES:
            one = self._waiting.popleft()
            group.append(one)
            size += one.size
        self._bytes -= size
        return group

    async def close(self) -> None:
        """Wait until nothing is under way or waits."""
        while self._flights:
            await asyncio.wait(self._flights)
