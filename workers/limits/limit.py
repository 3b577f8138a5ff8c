"""A limit as this node sees it: the permits that the node has, and the messages that wait for them.

A sending thread takes permits when its send begins, and a pull takes them for what it may append. A message that has none
waits in memory if it will go soon. The others stand aside in the parked set of their topic until there is room for them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from delayq.store.commands import Command, Head, Now

__all__ = ["IDLE", "Limit", "Listener", "admit", "begin"]

#: ms: about as many messages wait in memory as begin in this time. So each waits about as long, and none grows stale.
LATELY: Final = 150
#: ms after which a limit that nobody uses is asked for no more, and forgotten.
IDLE: Final = 1_000
#: ms for which a report of parked messages counts as what its queue wants; and for which these go before later messages of other
#: queues. A queue that stands still delays others no longer.
REPORTED: Final = 3_000
PROMPT: Final = 250
UNBOUNDED: Final = 2**31


class Listener(Protocol):
    """What waits for permits: a sender, or a pull job."""

    def limit_has_more(self, limit: Limit, count: int) -> None:
        """There are so many permits, or there is room for so many messages; from any thread."""

    def waits_for(self, limit: Limit) -> int:
        """How many of its messages in memory lack a permit; from any thread."""


class _Parked(NamedTuple):
    """The earliest parked message of a queue that could go, how many there are, and when the queue reported it."""

    head: Head
    number: int
    at: int


class Limit(ABC):
    """Safe for threads. `now` is always monotonic ms; `soon` asks Redis for this limit at such a time.

    Locks are taken in this order: a sender's, a limit's, an asker's. Listeners are called with no limit locked.
    """

    def __init__(self, name: str, key: str, soon: Callable[[Limit, int], None]) -> None:
        self.name = name
        self.key = key  # in Redis
        self.lock = threading.Lock()
        self.scheduled: int | None = None  # when its asker asks next; under the asker's lock
        self.silent: Callable[[int], bool] = lambda now: False  # whether its server does not answer
        self.version = ""  # the newest policies that it was looked up by
        self._soon = soon
        self._waiting = 0  # messages that were admitted and have not begun
        self._not_before = 0  # when Redis may be asked again
        self._used_at = 0
        self._parked: dict[Listener, _Parked] = {}
        self._listeners: set[Listener] = set()
        self._pace = 0.0  # how many sends begin in LATELY
        self._pace_at = 0

    def is_short(self, now: int) -> bool:
        """Whether there were fewer permits lately than could be used, or Redis does not answer."""
        return self._had_too_few(now) or self.silent(now)

    @abstractmethod
    def _had_too_few(self, now: int) -> bool:
        """Whether there were fewer permits lately than could be used."""

    @abstractmethod
    def _take(self, count: int, longest: int, now: int) -> int:
        """Take permits for at most so many sends; under the lock."""

    @abstractmethod
    def _stock(self, now: int) -> int:
        """How many permits there are; under the lock."""

    @abstractmethod
    def asks(self, now: int, server_now: Now = "") -> tuple[Sequence[Command[Any]], int | None]:
        """What to ask Redis now, and when to look again if there is nothing to ask; None: it may be forgotten."""

    @abstractmethod
    def answered(self, answers: Sequence[Any], asked_at: int) -> int:
        """Take in the answers, or errors, to what was asked at such a time; when to ask again."""

    # -- messages of a queue -----------------------------------------------------------------------------------------

    def admit(self, queue: Listener, count: int, head: Head, now: int) -> int:
        """Let messages wait in memory, as many of `count` as may; the earliest of them stands at `head`."""
        with self.lock:
            admitted = min(count, self._room(queue, head, now))
            self._waiting += admitted
            self._used_at = now
            return admitted

    def room_for(self, queue: Listener, head: Head, now: int) -> int:
        """How many parked messages of a queue may come back. None until half of what may wait has gone, as a message that
        comes back alone would cost a trip."""
        with self.lock:
            room = self._room(queue, head, now)
            return room if room >= self._waiting else 0

    def _room(self, queue: Listener, head: Head, now: int) -> int:
        if not self.is_short(now):
            return UNBOUNDED
        earlier = [one for other, one in self._parked.items() if other is not queue and one.head < head]
        others = sum([parked.number for parked in earlier if now - parked.at < PROMPT])
        return max(0, self._most_waiting(now) + self._stock(now) - self._waiting - others)

    def _most_waiting(self, now: int) -> int:
        """One at least: what comes back only once there is a permit for it may be too late for that."""
        return max(1, round(self._count(0, now)))

    def withdraw(self, count: int) -> None:
        """So many messages that were admitted wait no more."""
        with self.lock:
            self._waiting -= count

    def want(self, queue: Listener, count: int, head: Head, now: int) -> None:
        """A queue reports its parked messages, in place of what it reported before."""
        with self.lock:
            known = self._parked.pop(queue, None)
            if count:
                self._parked[queue] = _Parked(head, count, now)
                self._used_at = now
        if count and known is None:
            self._ask(now)

    def _wanted(self, now: int) -> int:
        """How many permits could be used now."""
        self._parked = {queue: one for queue, one in self._parked.items() if now - one.at < REPORTED}
        aside = sum([one.number for one in self._parked.values()])
        return aside + sum([listener.waits_for(self) for listener in self._listeners])

    # -- sends -------------------------------------------------------------------------------------------------------

    def begin(self, sender: Listener, count: int, longest: int, now: int) -> int:
        """Take permits for at most so many sends of at most `longest` ms that begin now. A sender that got fewer is told when
        there are more."""
        with self.lock:
            begun = self._take(count, longest, now)
            self._waiting -= begun
            self._count(begun, now)
            if begun < count:
                self._listeners.add(sender)
            room = self._room(sender, (0, b""), now) if self._parked else 0
            told = self._earliest(room) if self._waiting <= room < UNBOUNDED else []
        if begun < count:
            self._ask(now)
        self._tell(told, room)
        return begun

    def cancel(self, count: int, now: int) -> None:
        """So many sends that took permits just now do not begin after all: their messages wait again."""
        with self.lock:
            self._waiting += count
            self._count(-count, now)

    def end(self, count: int, now: int) -> None:  # noqa: B027  # a rate has nothing to do then
        """So many sends have ended."""

    def close(self) -> None:  # noqa: B027  # as at `end`
        """Take no more permits; the next request gives back what there is."""

    @property
    def waiting(self) -> int:
        """How many messages were admitted and have not begun."""
        return self._waiting

    def lacks(self, now: int) -> bool:
        """Whether it has no permits, though it is not short."""
        return not self.is_short(now) and not self.has_stock(now)

    def has_stock(self, now: int) -> bool:
        """Whether there is a permit."""
        with self.lock:
            return self._stock(now) > 0

    def _count(self, count: int, now: int) -> float:
        """Count sends that begin. What was counted before fades, by half in LATELY / 2."""
        self._pace = self._pace * 0.25 ** ((now - self._pace_at) / LATELY) + count
        self._pace_at = now
        if count:
            self._used_at = now
        return self._pace

    # -- who is told -------------------------------------------------------------------------------------------------

    def listen(self, listener: Listener, now: int) -> None:
        """Messages of this listener lack permits: it is told when there are some."""
        with self.lock:
            self._listeners.add(listener)
        self._ask(now)

    def _ask(self, now: int) -> None:
        """Ask Redis as soon as it may be asked."""
        at = max(self._not_before, now)
        if self.scheduled is None or self.scheduled > at:
            self._soon(self, at)

    def _earliest(self, room: int) -> list[Listener]:
        """The queue with the earliest parked message, if there is room for one; under the lock. When what it brings back begins,
        the next one is told."""
        return [min(self._parked, key=lambda queue: self._parked[queue].head)] if self._parked and room > 0 else []

    def _told(self, now: int) -> tuple[list[Listener], int]:
        """Whom to tell of the permits that there are, and how many these are; under the lock."""
        if not (stock := self._stock(now)):
            return [], 0
        listeners, self._listeners = list(self._listeners), set()
        return listeners + self._earliest(stock + self._most_waiting(now) - self._waiting), stock

    def _tell(self, listeners: Sequence[Listener], count: int) -> None:
        for listener in listeners:
            listener.limit_has_more(self, count)


def admit(limits: Sequence[Limit], queue: Listener, count: int, head: Head, now: int) -> int:
    """As `Limit.admit`, for messages that need permits of all of these."""
    for place, limit in enumerate(limits):
        admitted = limit.admit(queue, count, head, now)
        for other in limits[:place]:
            other.withdraw(count - admitted)
        count = admitted
    return count


def begin(limits: Sequence[Limit], sender: Listener, count: int, longest: int, now: int) -> tuple[int, Limit | None]:
    """As `Limit.begin`, for sends that need permits of all of these; and a limit that has too few. Rates stand first: a send that
    gets none keeps no slot from others."""
    lacking = None
    for place, limit in enumerate(limits):
        begun = limit.begin(sender, count, longest, now)
        if begun < count:
            lacking = limit
            for other in limits[:place]:
                other.cancel(count - begun, now)
            count = begun
    return count, lacking
