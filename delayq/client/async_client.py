"""`AsyncClient`: the calls for asyncio. Calls of `schedule` that are made at the same time share one round trip to Redis."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from delayq.base.errors import NotDone
from delayq.client.async_calls import AsyncCalls
from delayq.client.scheduling.encoding import Encoded
from delayq.client.scheduling.schedule import Outcome
from delayq.store.connect.event_loop import same_loop

#: Round trips to Redis at the same time. During the first one, messages gather. The second one starts when MANY messages
#: wait, or when the first of them has waited for LONG (seconds).
TRIPS: Final = 2
MANY: Final = 100
LONG: Final = 0.001
#: The bounds of one round trip, and of the messages that wait; each in messages and in bytes.
MOST: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024
WAITING: Final = 10_000
WAITING_BYTES: Final = 64 * 1024 * 1024


class _Waiting(NamedTuple):
    encoded: Encoded
    outcome: asyncio.Future[Outcome]
    until: float  # by the clock of the loop


class GroupCommit:
    """Gathers messages during a round trip to Redis and sends them with the next one.

    A message that has waited for longer than `timeout` (seconds) is not sent: its outcome is NotDone. `taken` is called with
    the number of messages of each round trip.
    """

    def __init__(self, send: Callable[[Sequence[Encoded]], Awaitable[Sequence[Outcome]]], timeout: float) -> None:
        self._timeout = timeout
        self.taken: Callable[[int], object] = lambda _count: None
        self._send = send
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._under_way = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of the round trips under way
        self._home = asyncio.Event()  # set while no round trip is under way
        self._home.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of messages that wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether so much waits that another message is refused."""
        return len(self._waiting) >= WAITING or self._bytes >= WAITING_BYTES

    async def add(self, encoded: Encoded) -> Outcome:
        """Send a message and return its outcome. Raises NotDone if too much waits.

        If the caller is cancelled before the message is sent, the message is not sent. Later, only its outcome is lost.
        """
        if self.full:
            raise NotDone(
                "too many messages wait for Redis, so this one was refused; schedule many messages by one call"
            )
        loop = self._loop = same_loop(self._loop if self._under_way else None)
        one = _Waiting(encoded, loop.create_future(), loop.time() + self._timeout)
        if self._under_way:
            self._waiting.append(one)
            self._bytes += len(encoded.body)
            self._start_if_due()
            return await one.outcome
        self._begin()
        try:
            await asyncio.sleep(0)  # calls of the same turn of the loop join this round trip
            if not self._waiting:  # it is the only one: without others, no task has to outlive the caller
                self.taken(1)
                (outcome,) = await self._send((encoded,))
                return outcome
            self._waiting.appendleft(one)
            self._bytes += len(encoded.body)
        finally:
            self._end()
        return await one.outcome

    def _begin(self) -> None:
        self._under_way += 1
        self._home.clear()

    def _end(self) -> None:
        # In the same step that saw nothing waiting, so that the next caller sees that nothing is under way.
        self._under_way -= 1
        while self._waiting and self._waiting[0].outcome.done():
            self._pop()
        if self._waiting:
            self._start()
        elif not self._under_way:
            self._home.set()

    def _start_if_due(self) -> None:
        if self._under_way < TRIPS:
            if len(self._waiting) >= MANY:
                self._start()
            elif self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(LONG, self._start_late)

    def _start_late(self) -> None:
        self._timer = None
        if self._waiting and self._under_way < TRIPS:
            self._start()

    def _start(self) -> None:
        self._begin()
        task = asyncio.get_running_loop().create_task(self._travel())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _travel(self) -> None:
        try:
            while group := self._take():
                await self._trip(group)
        finally:
            self._end()

    def _take(self) -> list[_Waiting]:
        """The messages of the next round trip, without those that waited too long or have no caller any more."""
        group: list[_Waiting] = []
        size = 0
        now = asyncio.get_running_loop().time()
        while self._waiting and len(group) < MOST and size < MOST_BYTES:
            one = self._pop()
            if one.outcome.done():
                continue
            if one.until < now:
                one.outcome.set_result(
                    NotDone("Redis was busy with other messages for so long that this one was not sent in time")
                )
                continue
            group.append(one)
            size += len(one.encoded.body)
        return group

    def _pop(self) -> _Waiting:
        one = self._waiting.popleft()
        self._bytes -= len(one.encoded.body)
        return one

    async def _trip(self, group: list[_Waiting]) -> None:
        self.taken(len(group))
        try:
            outcomes = await self._send([one.encoded for one in group])
        except asyncio.CancelledError:  # the loop ends, and with it every caller that waits
            for one in group:
                one.outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001  # each caller gets the error
            for one in group:
                if not one.outcome.done():
                    one.outcome.set_exception(error)
        else:
            for one, outcome in zip(group, outcomes, strict=True):
                if not one.outcome.done():  # else its caller has given up
                    one.outcome.set_result(outcome)

    async def close(self) -> None:
        """Wait until no message waits or is being sent."""
        while self._under_way:
            await self._home.wait()


class AsyncClient(AsyncCalls):
    """`Client` for asyncio: the same operations, awaited on one event loop; another loop is refused with a RuntimeError.

    Calls of `schedule` that are made at the same time share one round trip to Redis, and each gets the outcome of its own
    message. A single call does not wait. If too many messages wait, or one waits too long, the call raises NotDone.
    """

    _learning: asyncio.Task[None] | None = None

    @cached_property
    def group(self) -> GroupCommit:
        """The gathering of messages that are scheduled at the same time."""
        return GroupCommit(self._send, self._setup.settings.redis_timeout / 1000)

    async def _send_one(self, given: Encoded) -> Outcome:
        return await self.group.add(given)

    async def _learn(self) -> None:
        # One round trip for all callers. A caller that is cancelled meanwhile does not end it for the others.
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(super()._learn())
        await asyncio.shield(self._learning)

    async def close(self) -> None:
        """Wait for the calls of `schedule` under way, then close the connections."""
        await self.group.close()
        await super().close()
