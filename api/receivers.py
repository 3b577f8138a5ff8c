"""Callers that wait for messages: all of them share one connection to Redis, on which one command waits for all their streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from delayq import StoreError
from delayq.store import commands
from delayq.store.connect.address import CLUSTER, parse
from delayq.store.connect.async_arrivals import AsyncArrivals, newest
from delayq.store.connect.async_store import AsyncStore
from delayq.store.keys import ConsumerKeys, slot_tag

#: ms that one command waits. The streams of a first caller are only in the next command.
SLICE: Final = 100
#: Seconds between two calls of a group that receive without a new entry. Another process may have leased messages to a
#: consumer that died, or released them.
POLL: Final = 5.0
#: Seconds after which a call looks again at the latest if entries wait for others of their ordering key.
SOON: Final = 0.5
#: Seconds for which the streams of a group without callers stay in the command: most callers come again at once.
LINGER: Final = 1.0
#: Seconds between two looks for the messages that new callers have received before, by calls of the same name.
LOOK: Final = 0.25
#: Seconds before the next try after Redis was away.
PAUSE: Final = 0.5

log = structlog.get_logger("api")
#: The streams of a topic, the consumer group, and its filter.
Place = tuple[tuple[str, ...], str, tuple[str, ...]]


class _Group:
    """The callers of one group that wait for one topic, in the order in which they came. Each new entry wakes one of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.looks = 0  # callers that receive now
        self.is_unserved = False  # a caller was to be woken, and none waited
        self.after: dict[str, str] = {}  # by stream, the entry id behind which entries are new
        self.empty_since = loop.time()
        self._loop = loop
        self._timer = loop.call_later(POLL, self._poll)

    def wake(self) -> None:
        """Wake the caller that has waited for longest, else the next one that wants to wait."""
        self.empty_since = self._loop.time()  # perhaps, and its caller comes again
        while self.waiting:
            one = self.waiting.popleft()
            if not one.done():
                one.set_result(None)
                return
        self.is_unserved = True

    def poll_in(self, seconds: float) -> None:
        """Wake a caller after this time, and again and again."""
        self._timer.cancel()
        self._timer = self._loop.call_later(min(seconds, POLL), self._poll)

    def _poll(self) -> None:
        self.poll_in(POLL)
        self.wake()

    @property
    def polls_soon(self) -> bool:
        """Whether a caller looks again within SOON, because an entry waits for others of its ordering key."""
        return self._timer.when() - self._loop.time() <= SOON

    def end(self) -> None:
        """End the timer."""
        self._timer.cancel()


class Receivers:
    """Waits for new entries of streams for any number of callers, without a thread or a connection for each."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._in_cluster = parse(store.url).kind == CLUSTER
        self._groups: dict[Place, _Group] = {}
        self._calls: dict[asyncio.Future[None], tuple[Place, str]] = {}  # the names of calls that may be repeats
        self._look_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def has_others(self, place: Place) -> bool:
        """Whether others wait for the same messages, or receive now and wake the next one if there is more."""
        group = self._groups.get(place)
        return group is not None and (bool(group.waiting) or group.looks > 0)

    @contextmanager
    def look(self, place: Place) -> Iterator[None]:
        """In the block a caller receives that is ready to wait, so that others need not. Its failure wakes the next one."""
        if (group := self._groups.get(place)) is None:
            group = self._groups[place] = _Group(asyncio.get_running_loop())
        group.looks += 1
        group.is_unserved = False  # this caller finds what has arrived before
        try:
            yield
        except BaseException:
            group.wake()
            raise
        finally:
            group.looks -= 1
            group.empty_since = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def received(self, place: Place, now: int, again: int | None, *, is_full: bool) -> None:
        """Record that a caller has received at `now`, by the clock of Redis (Unix ms).

        In `again` ms a lease or a pause of the group ends. If it received as many as it wanted, there may be more: the next
        caller receives.
        """
        group = self._groups.get(place)
        if group is None:
            return
        for stream in place[0]:
            group.after[stream] = max(group.after.get(stream, "0"), newest(now), key=_order)
        if again is not None:
            group.poll_in(max(again, 1) / 1000)
        if is_full:
            group.wake()

    async def wait(self, place: Place, longest: float, call: str | None = None) -> bool:
        """Return true once the caller should receive again, or false after `longest` seconds and once `stop` is called.

        A caller that joins others need not have received. Then `call` is its name, if it has one. A call of this name may have
        received messages before, and its answer was lost. Then the caller should receive, too. The same holds if the wait ends
        before Redis has answered whether there was such a call.
        """
        loop = asyncio.get_running_loop()
        group = self._groups[place]
        if self._is_stopping:
            return call is not None
        if group.is_unserved:
            group.is_unserved = False
            return True
        own: asyncio.Future[None] = loop.create_future()
        group.waiting.append(own)
        if call is not None:
            self._calls[own] = place, call
        try:
            async with asyncio.timeout(longest):
                await own
            return own in self._calls or not self._is_stopping
        except TimeoutError:
            return own in self._calls or (own.done() and not own.cancelled())
        except asyncio.CancelledError:
            if own.done() and not own.cancelled():
                group.wake()  # it was woken, and its caller has gone: another one takes what arrived
            raise
        finally:
            if own in group.waiting:
                group.waiting.remove(own)
            self._calls.pop(own, None)
            if not group.waiting:
                group.empty_since = loop.time()

    def pass_on(self, place: Place) -> None:
        """Wake the next caller instead of one that was woken and has gone."""
        if (group := self._groups.get(place)) is not None:
            group.wake()

    def waits_for_key(self, group: str) -> bool:
        """Whether entries of a group of this name may wait for others of their ordering key, which an acknowledgement frees."""
        return any(name == group and one.waiting and one.polls_soon for (_, name, _), one in self._groups.items())

    def changed(self, streams: Iterable[str] | None = None, group: str | None = None) -> None:
        """Let a caller of each group look again: this process has changed leases, a pause, a group or the time.

        Without `streams` the change concerns all of them, else those groups of this name that wait for one of them.
        """
        some = None if streams is None else set(streams)
        for (own, name, _), one in self._groups.items():
            if group in (None, name) and (some is None or not some.isdisjoint(own)):
                one.wake()

    def stop(self) -> None:
        """Answer all callers that wait: the process stops, and another one may serve them."""
        self._is_stopping = True
        for group in self._groups.values():
            while group.waiting:
                group.wake()

    async def close(self) -> None:
        """End the wait for streams."""
        for group in self._groups.values():
            group.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        arrivals = AsyncArrivals(self._store)
        try:
            while self._groups:
                try:
                    await self._find_repeated()
                    found: dict[str, str] = {}
                    if self._wanted():
                        found = await arrivals.newer(self._wanted, SLICE)
                    else:
                        await asyncio.sleep(SLICE / 1_000)  # the first callers have no answer yet
                except StoreError as error:
                    log.warning("arrivals_lost", error=str(error))
                    for group in list(self._groups.values()):
                        group.wake()  # the caller gets the error, or finds Redis again
                    await asyncio.sleep(PAUSE)
                    continue
                for stream, id in found.items():
                    self._arrived(stream, id)
                self._forget()
        finally:
            await arrivals.close()

    async def _find_repeated(self) -> None:
        """Wake the callers that repeat a call which has received messages: its answer was lost."""
        now, calls = asyncio.get_running_loop().time(), list(self._calls.items())
        if not calls or now < self._look_at:
            return
        self._look_at = now + LOOK
        by_slot: dict[str, list[tuple[asyncio.Future[None], ConsumerKeys, str]]] = {}  # a command has one slot
        for own, ((streams, group, _), call) in calls:
            for stream in streams:
                slot = slot_tag(stream) if self._in_cluster else ""
                by_slot.setdefault(slot, []).append((own, self._store.keys.consumers(stream, group), call))
        looks = [commands.held_calls([(keys, call) for _, keys, call in some]) for some in by_slot.values()]
        repeated: set[asyncio.Future[None]] = set()
        for some, found in zip(by_slot.values(), await self._store.run_all(looks), strict=True):
            repeated.update(own for (own, *_), is_held in zip(some, found, strict=True) if is_held)
        for own, _ in calls:
            if own not in repeated:
                self._calls.pop(own, None)
            elif not own.done():  # else its time has just ended, and the caller receives because of its name
                own.set_result(None)

    def _wanted(self) -> dict[str, str]:
        """The streams, each with the earliest entry id behind which a group waits."""
        wanted: dict[str, str] = {}
        for group in self._groups.values():
            for stream, after in group.after.items():
                known = wanted.get(stream)
                wanted[stream] = after if known is None else min(known, after, key=_order)
        return wanted

    def _arrived(self, stream: str, id: str) -> None:
        for group in self._groups.values():
            after = group.after.get(stream)
            if after is not None and _order(after) < _order(id):
                group.after[stream] = id
                group.wake()

    def _forget(self) -> None:
        """Forget the groups that no caller has waited for lately."""
        before = asyncio.get_running_loop().time() - LINGER
        for place in [
            at for at, one in self._groups.items() if not one.waiting and not one.looks and one.empty_since < before
        ]:
            self._groups.pop(place).end()


def _order(id: str) -> tuple[int, int]:
    ms, _, number = id.partition("-")
    return int(ms), int(number or 0)
