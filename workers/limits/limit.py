"""A limit as this node sees it: the permits that the node has, and the messages that wait for them.

A sending thread takes permits when its send begins, and a pull takes them for what it may append. A message without a permit
waits in memory if it will go soon. The others stand in the parked set of their topic until there is room for them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from delayq.store.commands import Command, Head, Now, Spending

__all__ = ["IDLE", "Limit", "Listener", "admit", "begin"]

#: ms: of a short limit about as many messages wait in memory as begin in this time.
LATELY: Final = 150
#: ms after which a limit that nobody uses is forgotten.
IDLE: Final = 1_000
#: ms after which a limit that its server does not answer for counts as short.
SILENT: Final = 300
#: ms for which a report of parked messages counts as what its queue wants; and for which these go before later messages of other
#: queues. A queue that stands still delays others no longer.
REPORTED: Final = 3_000
PROMPT: Final = 250
UNBOUNDED: Final = 2**31


class Listener(Protocol):
    """What waits for permits: a sender, or a pull job."""

    def limits_have_more(self, limits: Mapping[Limit, int]) -> None:
        """There are so many permits of each of these, or room for so many messages; from any thread."""

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

    lasts = False  # whether a permit is used until its send ends

    def __init__(self, name: str, key: str, soon: Callable[[Limit, int], None]) -> None:
        self.name = name
        self.key = key  # in Redis
        self.lock = threading.Lock()
        self.version = ""  # the newest policies that it was looked up by
        self._soon = soon
        self._waiting = 0  # messages that were admitted while it was short, and have not begun
        self._not_before = 0  # when Redis may be asked again
        self._unanswered_since: int | None = None
        self._used_at = 0
        self._parked: dict[Listener, _Parked] = {}
        self._listeners: set[Listener] = set()
        self._pace = 0.0  # how many sends begin in LATELY
        self._pace_at = 0

    def is_short(self, now: int) -> bool:
        """Whether there were fewer permits lately than could be used, or Redis does not answer."""
        since = self._unanswered_since
        return self._had_too_few(now) or (since is not None and now - since > SILENT)

    @abstractmethod
    def _had_too_few(self, now: int) -> bool:
        """Whether there were fewer permits lately than could be used."""

    @abstractmethod
    def _take(self, count: int, longest: int, now: int) -> int:
        """Take permits for at most so many sends; under the lock."""

    @abstractmethod
    def _count_permits(self, now: int) -> int:
        """How many permits there are; under the lock."""

    @abstractmethod
    def next_request(
        self, now: int, server_ahead: int | None = None, server_now: Now = ""
    ) -> tuple[Spending | Command[int] | None, int | None]:
        """What to ask Redis now, and when to look again if there is nothing to ask; None: once messages lack permits.

        The clock of the server is ahead of ours by so many ms, or nobody knows.
        """

    @abstractmethod
    def _use_answer(self, answer: Any, asked_at: int) -> int | None:
        """Take in the answer, or error, to what was asked at such a time; when to look again. Under the lock."""

    def take_answer(self, answer: Any, asked_at: int) -> tuple[int | None, Sequence[Listener], int]:
        """Take in the answer; when to look again, and who is to be told of how many permits."""
        with self.lock:
            self._unanswered_since = None
            return (self._use_answer(answer, asked_at), *self._listeners_to_notify(asked_at))

    # -- messages of a queue -----------------------------------------------------------------------------------------

    def admit(self, queue: Listener, count: int, head: Head, room: int, now: int) -> int:
        """Let messages wait in memory, as many of `count` as may: `room` of them without a permit. The earliest of them stands
        at `head`."""
        with self.lock:
            most = self._room(queue, head, now)
            if count > room:
                most = min(most, room + max(0, self._count_permits(now) - self._waiting))
            admitted = min(count, most)
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
        return max(0, self._most_waiting(now) + self._count_permits(now) - self._waiting - others)

    def _most_waiting(self, now: int) -> int:
        """How many messages may wait without a permit while it is short; under the lock."""
        return round(self._count_begun(0, now))

    def has_excess(self, now: int) -> bool:
        """Whether far more messages wait in memory than begin soon: many were admitted before it was short."""
        if not self.is_short(now):
            return False
        with self.lock:
            lacking = sum([listener.waits_for(self) for listener in self._listeners])
            return lacking > 1 + 2 * self._most_waiting(now) + self._count_permits(now)

    def withdraw(self, count: int) -> None:
        """So many messages that were admitted wait no more."""
        with self.lock:
            self._waiting = max(0, self._waiting - count)

    def report_parked(self, queue: Listener, count: int, head: Head, now: int) -> None:
        """A queue reports its parked messages, in place of what it reported before."""
        with self.lock:
            known = self._parked.pop(queue, None)
            if count:
                self._parked[queue] = _Parked(head, count, now)
                self._used_at = now
        if count and known is None:
            self._request_soon(now)

    def _count_wanted(self, now: int) -> int:
        """How many permits could be used now."""
        if not self._parked and not self._listeners:
            return 0
        self._parked = {queue: one for queue, one in self._parked.items() if now - one.at < REPORTED}
        parked = sum([one.number for one in self._parked.values()])
        return parked + sum([listener.waits_for(self) for listener in self._listeners])

    # -- sends -------------------------------------------------------------------------------------------------------

    def begin(self, sender: Listener, count: int, longest: int, now: int) -> int:
        """Take permits for at most so many sends of at most `longest` ms that begin now. A sender that got fewer is told when
        there are more."""
        room, told = 0, list[Listener]()
        with self.lock:
            begun = self._take(count, longest, now)
            self._waiting = max(0, self._waiting - begun)
            self._count_begun(begun, now)
            if begun < count:
                self._listeners.add(sender)
            if self._parked:
                room = self._room(sender, (0, b""), now)
                told = self._earliest(room) if self._waiting <= room < UNBOUNDED else []
            ask = begun < count or self._is_low(now)
        if ask:
            self._request_soon(now)
        self._notify(told, room)
        return begun

    def _is_low(self, now: int) -> bool:
        """Whether to ask for permits before messages lack them; under the lock."""
        return False

    def cancel(self, count: int, now: int) -> None:
        """So many sends that took permits just now do not begin after all: their messages wait again."""
        with self.lock:
            self._waiting += count
            self._count_begun(-count, now)
            self._put_back(count, now)

    @abstractmethod
    def _put_back(self, count: int, now: int) -> None:
        """Put so many permits back that were taken last; under the lock."""

    def end(self, count: int, now: int) -> None:  # noqa: B027  # a rate has nothing to do then
        """So many sends have ended."""

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
        self._request_soon(now)

    def _request_soon(self, now: int) -> None:
        """Ask Redis as soon as it may be asked."""
        if self._unanswered_since is None:
            self._unanswered_since = max(self._not_before, now)
            self._soon(self, self._unanswered_since)

    def _earliest(self, room: int) -> list[Listener]:
        """The queue with the earliest parked message, if there is room for one; under the lock. When what it brings back begins,
        the next one is told."""
        return [min(self._parked, key=lambda queue: self._parked[queue].head)] if self._parked and room > 0 else []

    def _listeners_to_notify(self, now: int) -> tuple[list[Listener], int]:
        """Whom to tell of the permits that there are, and how many these are; under the lock."""
        if not (stock := self._count_permits(now)):
            return [], 0
        listeners, self._listeners = list(self._listeners), set()
        return listeners + self._earliest(stock + self._most_waiting(now) - self._waiting), stock

    def _notify(self, listeners: Sequence[Listener], count: int) -> None:
        for listener in listeners:
            listener.limits_have_more({self: count})


def admit(limits: Sequence[Limit], queue: Listener, count: int, head: Head, room: int, now: int) -> int:
    """As `Limit.admit`, for messages that need permits of all of these."""
    for place, limit in enumerate(limits):
        admitted = limit.admit(queue, count, head, room, now)
        for other in limits[:place] if admitted < count else ():
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
