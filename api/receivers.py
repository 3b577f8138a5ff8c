"""Callers that wait for messages: all of them share one connection to Redis, on which one command waits for all their streams."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import structlog

from delayq import StoreError
from delayq.store.commands import plain
from delayq.store.connect.address import CLUSTER, parse
from delayq.store.connect.async_arrivals import AsyncArrivals, newest
from delayq.store.connect.async_store import AsyncStore

__all__ = ["Receivers"]

#: ms that one command waits: so long a caller who waits for another stream may have to wait for the next command.
SLICE: Final = 50
#: Seconds between two looks in a Redis Cluster, where one command cannot wait for the streams of several servers.
LOOK: Final = 0.1
#: Seconds before the next try after Redis was away.
PAUSE: Final = 0.5

log = structlog.get_logger("api")
#: The streams of a topic, and the consumer group.
Place = tuple[tuple[str, ...], str]


class _Group:
    """The callers of one group that wait for one topic, in the order in which they came. Each new entry wakes one of them."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.after: dict[str, str] = {}  # by stream, the entry id behind which entries are new
        self.timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Wake the caller that has waited for longest."""
        while self.waiting:
            one = self.waiting.popleft()
            if not one.done():
                one.set_result(None)
                return


class Receivers:
    """Waits for new entries of streams for any number of callers, without a thread or a connection for each."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._groups: dict[Place, _Group] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, place: Place, since: int, again: int | None, longest: float) -> None:
        """Return when the caller should receive again, after `longest` seconds at the latest.

        `since` is the time of its last receive, by the clock of Redis (Unix ms). In `again` ms a lease or a pause of its group
        ends.
        """
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group()
        loop = asyncio.get_running_loop()
        for stream in place[0]:
            group.after.setdefault(stream, newest(since))
        if again is not None:
            if group.timer is not None:
                group.timer.cancel()
            group.timer = loop.call_later(max(again, 1) / 1000, group.wake)
        own: asyncio.Future[None] = loop.create_future()
        group.waiting.append(own)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(longest):
                await own
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if own.done() and not own.cancelled():
                group.wake()  # it was woken, and its caller has gone: another one takes what arrived
            raise
        finally:
            if own in group.waiting:
                group.waiting.remove(own)
            if not group.waiting:
                if group.timer is not None:
                    group.timer.cancel()
                self._groups.pop(place, None)

    def more(self, place: Place) -> None:
        """Wake the next caller: the one before received as many as it wanted, so there may be more."""
        if (group := self._groups.get(place)) is not None:
            group.wake()

    async def close(self) -> None:
        """End the wait for streams."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        arrivals = AsyncArrivals(self._store)
        in_cluster = parse(self._store.url).kind == CLUSTER
        try:
            while self._groups:
                try:
                    wanted = self._wanted()
                    if in_cluster:
                        await asyncio.sleep(LOOK)
                        found = await self._look(wanted)
                    else:
                        found = await arrivals.newer(wanted, SLICE)
                except StoreError as error:
                    log.warning("arrivals_lost", error=str(error))
                    for group in list(self._groups.values()):
                        group.wake()  # the caller gets the error, or finds Redis again
                    await asyncio.sleep(PAUSE)
                    continue
                for stream, id in found.items():
                    self._arrived(stream, id)
        finally:
            await arrivals.close()

    def _wanted(self) -> dict[str, str]:
        """The streams, each with the earliest entry id behind which a group waits."""
        wanted: dict[str, str] = {}
        for group in self._groups.values():
            for stream, after in group.after.items():
                known = wanted.get(stream)
                wanted[stream] = after if known is None else min(known, after, key=_order)
        return wanted

    def _arrived(self, stream: str, id: str) -> None:
        for group in list(self._groups.values()):
            after = group.after.get(stream)
            if after is not None and _order(after) < _order(id):
                group.after[stream] = id
                group.wake()

    async def _look(self, wanted: dict[str, str]) -> dict[str, str]:
        asked = [
            plain("XREAD", "COUNT", 1, "STREAMS", stream, after, read=lambda reply: reply, key=stream)
            for stream, after in wanted.items()
        ]
        answers = await self._store.run_many(asked)
        found: dict[str, str] = {}
        for stream, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, StoreError):
                raise answer
            if answer:
                found[stream] = answer[0][1][0][0].decode()
        return found


def _order(id: str) -> tuple[int, int]:
    ms, _, number = id.partition("-")
    return int(ms), int(number or 0)
