"""A limit on one node: the permits that the node has, and the messages that wait for them.

A sending thread takes permits when its send begins. A pull takes permits for the messages that it appends. A message without a
permit waits in memory if it can be sent soon. Other messages stay in the parked set of their topic until there is room.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from delayq.store.commands import Head, SlotRequest, Spending

#: ms: if permits are short, about as many messages wait in memory as begin in this time.
LATELY: Final = 150
#: ms after which an unused limit is forgotten.
IDLE: Final = 1_000
#: ms for which a queue's report of parked messages counts, and for which these messages precede later ones of other queues. A
#: stalled queue delays others no longer than that.
REPORTED: Final = 3_000
PROMPT: Final = 250
UNBOUNDED: Final = 2**31


class Queue(Protocol):
    """A pull job that has messages of limited topics."""

    def limits_have_more(self, limits: Mapping[Limit, int]) -> None:
        """Receive how many permits each limit has, or how many messages it has room for; from any thread."""


class Listener(Queue, Protocol):
    """A sender whose messages wait for permits."""

    def waits_for(self, limit: Limit) -> int:
        """The number of messages in memory without a permit; from any thread."""


class Server(Protocol):
    """The Redis that has the permits of a limit."""

    def is_silent(self, now: int) -> bool:
        """Whether it has not answered lately; from any thread."""


class _Parked(NamedTuple):
    """A report of a queue: its earliest parked message, their number, and the time of the report."""

    head: Head
    number: int
    at: int


class Limit(ABC):
    """Thread-safe. `now` is always monotonic ms. `soon` schedules a request to Redis.

    Locks are taken in this order: a sender's, a limit's, an asker's. Listeners are called without a limit's lock.
    """

    lasts = False  # whether a permit is used until its send ends

    def __init__(self, name: str, key: str, soon: Callable[[Limit, int], None]) -> None:
        self.name = name
        self.key = key  # in Redis
        self.lock = threading.Lock()
        self.version = ""  # of the newest policies that define it
        self._soon = soon
        self._waiting = 0  # admitted messages that have not begun
        self._not_before = 0  # the earliest time of the next request
        self.server: Server | None = None  # from its first request on
        self._requested = False
        self._used_at = 0
        self._parked: dict[Queue, _Parked] = {}
        self._listeners: set[Listener] = set()
        self._pace = 0.0  # the number of sends that begin in LATELY
        self._pace_at = 0

    def is_short(self, now: int) -> bool:
        """Whether permits were too few lately, or Redis does not answer."""
        return self._had_too_few(now) or (self.server is not None and self.server.is_silent(now))

    @abstractmethod
    def _had_too_few(self, now: int) -> bool:
        """Whether permits were too few lately."""

    @abstractmethod
    def _take(self, count: int, longest: int, now: int) -> int:
        """Take permits for `count` sends at most, and return their number; under the lock."""

    @abstractmethod
    def _count_permits(self, now: int) -> int:
        """The number of permits; under the lock."""

    @abstractmethod
    def next_request(
        self, now: int, server_ahead: int | None = None
    ) -> tuple[Spending | SlotRequest | None, int | None]:
        """Return the next request, or else the time of the next call; None: call again once messages need permits.

        `server_ahead` is the server's clock minus that of this node in ms, if it is known.
        """

    @abstractmethod
    def _use_answer(self, answer: Any, asked_at: int) -> int | None:
        """Use the answer or error of a request, and return the time of the next call; under the lock."""

    def take_answer(self, answer: Any, asked_at: int) -> tuple[int | None, Sequence[Queue], int]:
        """Use an answer. Return the time of the next call, the listeners to notify, and the number of permits."""
        with self.lock:
            self._requested = False
            return (self._use_answer(answer, asked_at), *self._listeners_to_notify(asked_at))

    # -- messages of a queue -----------------------------------------------------------------------------------------

    def admit(self, queue: Queue, count: int, head: Head, room: int, now: int) -> int:
        """Admit messages of a queue to memory, and return how many of `count`.

        `room` is how many may wait without a permit, and `head` is the place of the earliest.
        """
        with self.lock:
            most = self._room(queue, head, now)
            if count > room:
                most = min(most, room + max(0, self._count_permits(now) - self._waiting))
            admitted = min(count, most)
            self._waiting += admitted
            self._used_at = now
            return admitted

    def room_for(self, queue: Queue, head: Head, now: int) -> int:
        """The number of parked messages of a queue that may come back.

        It is 0 until half of the waiting messages have begun, because single messages would cost a round trip each.
        """
        with self.lock:
            room = self._room(queue, head, now)
            return room if room >= self._waiting else 0

    def _room(self, queue: Queue, head: Head, now: int) -> int:
        if not self.is_short(now):
            return UNBOUNDED
        earlier = [one for other, one in self._parked.items() if other is not queue and one.head < head]
        others = sum([parked.number for parked in earlier if now - parked.at < PROMPT])
        return max(0, self._most_waiting(now) + self._count_permits(now) - self._waiting - others)

    def _most_waiting(self, now: int) -> int:
        """The number of messages that may wait without a permit while the limit is short; under the lock."""
        return round(self._count_begun(0, now))

    def has_excess(self, now: int) -> bool:
        """Whether far more messages wait in memory than begin soon, because they were admitted before permits were short."""
        if not self.is_short(now):
            return False
        with self.lock:
            lacking = sum([listener.waits_for(self) for listener in self._listeners])
            return lacking > 1 + 2 * self._most_waiting(now) + self._count_permits(now)

    def withdraw(self, count: int) -> None:
        """Note that `count` admitted messages no longer wait."""
        with self.lock:
            self._waiting = max(0, self._waiting - count)

    def report_parked(self, queue: Queue, count: int, head: Head, now: int) -> None:
        """Replace the report of a queue about its parked messages."""
        with self.lock:
            known = self._parked.pop(queue, None)
            if count:
                self._parked[queue] = _Parked(head, count, now)
                self._used_at = now
        if count and known is None:
            self._request_soon(now)

    def _count_wanted(self, now: int) -> int:
        """The number of permits that could be used now."""
        if not self._parked and not self._listeners:
            return 0
        self._parked = {queue: one for queue, one in self._parked.items() if now - one.at < REPORTED}
        parked = sum([one.number for one in self._parked.values()])
        return parked + sum([listener.waits_for(self) for listener in self._listeners])

    # -- sends -------------------------------------------------------------------------------------------------------

    def begin(self, sender: Listener, count: int, longest: int, now: int) -> int:
        """Take permits for `count` sends at most, which begin now and last `longest` ms at most. Return their number.

        A sender that got fewer is notified when there are more.
        """
        room, notified = 0, list[Queue]()
        with self.lock:
            begun = self._take(count, longest, now)
            self._waiting = max(0, self._waiting - begun)
            self._count_begun(begun, now)
            if begun < count:
                self._listeners.add(sender)
            if self._parked:
                room = self._room(sender, (0, b""), now)
                notified = self._earliest(room) if self._waiting <= room < UNBOUNDED else []
            ask = begun < count or self._is_low(now)
        if ask:
            self._request_soon(now)
        self._notify(notified, room)
        return begun

    def _is_low(self, now: int) -> bool:
        """Whether to ask for permits before messages need them; under the lock."""
        return False

    def cancel(self, count: int, now: int) -> None:
        """Cancel `count` sends that took permits just now. Their messages wait again."""
        with self.lock:
            self._waiting += count
            self._count_begun(-count, now)
            self._put_back(count, now)

    @abstractmethod
    def _put_back(self, count: int, now: int) -> None:
        """Return `count` permits that were taken last; under the lock."""

    def end(self, count: int, now: int) -> None:  # noqa: B027  # a rate does nothing then
        """Note that `count` sends have ended."""

    def use(self, now: int) -> None:
        """Note that messages will need it soon, so that it is not forgotten before."""
        self._used_at = now

    def is_unused(self, now: int) -> bool:
        """Whether it may be forgotten: no message used it lately, or waits for it."""
        with self.lock:
            return self._is_unused(now)

    def _is_unused(self, now: int) -> bool:
        return now - self._used_at > IDLE and not (self._waiting or self._count_wanted(now))

    def has_permits(self, now: int) -> bool:
        """Whether there is a permit."""
        with self.lock:
            return self._count_permits(now) > 0

    def _count_begun(self, count: int, now: int) -> float:
        """Count sends that begin. Earlier counts fade by half in LATELY / 2."""
        self._pace = self._pace * 0.25 ** ((now - self._pace_at) / LATELY) + count
        self._pace_at = now
        if count:
            self._used_at = now
        return self._pace

    # -- listeners ---------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener, now: int) -> None:
        """Notify this listener when there are permits, because its messages have none."""
        with self.lock:
            self._listeners.add(listener)
        self._request_soon(now)

    def _request_soon(self, now: int) -> None:
        """Schedule a request as early as possible."""
        if not self._requested:
            self._requested = True
            self._soon(self, max(self._not_before, now))

    def _earliest(self, room: int) -> list[Queue]:
        """The queue with the earliest parked message, if there is room for one; under the lock.

        The next queue is notified when the messages of this one begin.
        """
        return [min(self._parked, key=lambda queue: self._parked[queue].head)] if self._parked and room > 0 else []

    def _listeners_to_notify(self, now: int) -> tuple[list[Queue], int]:
        """The listeners to notify, and the number of permits; under the lock."""
        if not (self._listeners or self._parked) or not (stock := self._count_permits(now)):
            return [], 0
        listeners: list[Queue] = list(self._listeners)
        self._listeners = set()
        return listeners + self._earliest(stock + self._most_waiting(now) - self._waiting), stock

    def _notify(self, listeners: Sequence[Queue], count: int) -> None:
        for listener in listeners:
            listener.limits_have_more({self: count})


def admit(limits: Sequence[Limit], queue: Queue, count: int, head: Head, room: int, now: int) -> int:
    """Call `Limit.admit` for messages that need permits of all these limits."""
    for place, limit in enumerate(limits):
        admitted = limit.admit(queue, count, head, room, now)
        for other in limits[:place] if admitted < count else ():
            other.withdraw(count - admitted)
        count = admitted
    return count


def begin(limits: Sequence[Limit], sender: Listener, count: int, longest: int, now: int) -> tuple[int, Limit | None]:
    """Call `Limit.begin` for sends that need permits of all these limits. Return also a limit that has too few.

    Rates come first, so that a send without a permit takes no slot from others.
    """
    lacking = None
    for place, limit in enumerate(limits):
        begun = limit.begin(sender, count, longest, now)
        if begun < count:
            lacking = limit
            for other in limits[:place]:
                other.cancel(count - begun, now)
            count = begun
    return count, lacking
