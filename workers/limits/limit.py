"""A limit on one node: the permits that the node has, and who waits for them.

A sending thread takes permits when its send begins, a release for the messages that it appends. A message without a permit waits
at its sender if it can be sent soon. Other messages stay in the parked set of their topic, and their queues take turns.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from delayq.store.commands import SlotRequest, Spending

#: ms: if permits are short, about as many messages wait in memory as begin in this time.
LATELY: Final = 150
#: ms after which an unused limit is forgotten.
IDLE: Final = 1_000


class Listener(Protocol):
    """A sender or a queue whose messages wait for permits."""

    def limits_have_more(self, limits: Sequence[Limit]) -> None:
        """Note that these limits have permits, or that it is the turn of a queue; from any thread."""

    def waits_for(self, limit: Limit) -> int:
        """The number of messages without a permit, in memory or in the parked sets of a queue; from any thread."""


class Server(Protocol):
    """The Redis that has the permits of a limit."""

    def is_silent(self, now: int) -> bool:
        """Whether it has not answered lately; from any thread."""


class Limit(ABC):
    """Thread-safe. `now` is always monotonic ms. `soon` schedules a request to Redis.

    Locks are taken in this order: a sender's, a limit's, an asker's. Listeners are notified without a limit's lock.
    """

    lasts = False  # whether a permit is used until its send ends

    def __init__(self, name: str, key: str, soon: Callable[[Limit, int], None], now: int) -> None:
        self.name = name
        self.key = key  # in Redis
        self.lock = threading.Lock()
        self.version = ""  # of the newest policies that define it
        self._soon = soon
        self._not_before = 0  # the earliest time of the next request
        self.server: Server | None = None  # from its first request on
        self._requested = False
        self._used_at = now
        self._senders: set[Listener] = set()
        # Queues in their order, and how many parked messages of each may come back.
        self._turns: dict[Listener, int] = {}
        self._append: set[Listener] = set()  # queues that append messages by permits themselves
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

    def permits(self, now: int) -> int:
        """The number of permits."""
        with self.lock:
            return self._count_permits(now)

    # -- for its asker -----------------------------------------------------------------------------------------------

    def next_request(
        self, now: int, server_ahead: int | None = None
    ) -> tuple[Spending | SlotRequest | None, int | None, Sequence[Listener]]:
        """Return the next request, or else the time of the next call; None: call again once messages need permits.

        Also return the listeners to notify. A queue that has not used its turn gives it to the next one, and waits again when it
        looks at its parked sets. `server_ahead` is the server's clock minus that of this node in ms, if it is known.
        """
        with self.lock:
            self._turns = {queue: 0 for queue, turn in self._turns.items() if not turn and queue.waits_for(self)}
            request, again = self._request(self._count_wanted(), now, server_ahead)
            return request, again, () if request is not None else self._call(now)

    def _count_wanted(self) -> int:
        """The number of permits that could be used now."""
        return sum([one.waits_for(self) for one in (*self._senders, *self._turns)])

    @abstractmethod
    def _request(
        self, wanted: int, now: int, server_ahead: int | None
    ) -> tuple[Spending | SlotRequest | None, int | None]:
        """The next request, or the time of the next call. `wanted` permits could be used now; under the lock."""

    def take_answer(self, answer: Any, asked_at: int) -> tuple[int | None, Sequence[Listener]]:
        """Use the answer or error of a request. Return the time of the next call, and the listeners to notify."""
        with self.lock:
            self._requested = False
            return self._use_answer(answer, asked_at), self._call(asked_at)

    @abstractmethod
    def _use_answer(self, answer: Any, asked_at: int) -> int | None:
        """Use an answer, and return the time of the next call; under the lock."""

    def _request_soon(self, now: int) -> None:
        """Schedule a request as early as possible."""
        if not self._requested:
            self._requested = True
            self._soon(self, max(self._not_before, now))

    # -- queues with parked messages ---------------------------------------------------------------------------------

    def turn(self, queue: Listener, now: int, *, appends: bool) -> int:
        """How many parked messages of a queue may come back, or it `appends`. With 0 it is notified when it is its turn."""
        with self.lock:
            turn = self._turns.setdefault(queue, 0)
            if appends:
                self._append.add(queue)
        if not turn:
            self._request_soon(now)
        return turn

    def end_turn(self, queue: Listener) -> None:
        """Note that a queue has used its turn, or has no message for this limit."""
        with self.lock:
            self._turns.pop(queue, None)
            self._append.discard(queue)

    def _call(self, now: int) -> list[Listener]:
        """The listeners that may go on: senders with permits, and queues in their order; under the lock.

        There is room in memory once half of the messages there have begun, because single messages would cost a round trip each.
        Queues that append need permits instead.
        """
        permits, lacking = self._count_permits(now), sum([sender.waits_for(self) for sender in self._senders])
        called: list[Listener] = []
        if permits:
            called, self._senders = list(self._senders), set()
        room = permits + self._most_waiting(now) - lacking - sum(self._turns.values())
        waiting = [queue for queue, turn in self._turns.items() if not turn] if room >= lacking else []
        free = permits - self._reserved()
        for place, queue in enumerate(waiting):
            appends = queue in self._append
            if (left := min(room, free) if appends else room) > 0:
                self._turns[queue] = turn = -(-left // (len(waiting) - place))
                room, free = room - turn, free - turn if appends else free
                called.append(queue)
        return called

    def _reserved(self) -> int:
        """The number of permits for the queues that append and whose turn it is; under the lock."""
        return sum([self._turns.get(queue, 0) for queue in self._append])

    def _most_waiting(self, now: int) -> int:
        """The number of messages that may wait without a permit while the limit is short; under the lock."""
        return round(self._count_begun(0, now))

    # -- sends -------------------------------------------------------------------------------------------------------

    def begin(self, count: int, longest: int, now: int) -> int:
        """Take permits for `count` sends at most, which begin now and last `longest` ms at most. Return their number."""
        with self.lock:
            begun = self._take(count, longest, now)
            self._count_begun(begun, now)
            ask = self._is_low(now)
        if ask:
            self._request_soon(now)
        return begun

    def _is_low(self, now: int) -> bool:
        """Whether to ask for permits before messages need them; under the lock."""
        return False

    def listen(self, sender: Listener, now: int) -> None:
        """Notify a sender when there are permits, because its messages have none."""
        with self.lock:
            self._senders.add(sender)
        self._request_soon(now)

    def end(self, count: int, now: int) -> None:  # noqa: B027  # a rate does nothing then
        """Note that `count` sends have ended."""

    def is_unused(self, now: int) -> bool:
        """Whether it may be forgotten: no message used it lately, or waits for it."""
        with self.lock:
            return self._is_unused(now)

    def _is_unused(self, now: int) -> bool:
        return now - self._used_at > IDLE and not self._count_wanted()

    def _count_begun(self, count: int, now: int) -> float:
        """Count sends that begin. Earlier counts fade by half in LATELY / 2."""
        self._pace = self._pace * 0.25 ** ((now - self._pace_at) / LATELY) + count
        self._pace_at = now
        if count:
            self._used_at = now
        return self._pace


def begin(limits: Sequence[Limit], sender: Listener, count: int, longest: int, now: int) -> tuple[int, Limit | None]:
    """Take permits of all these limits for `count` sends at most. Return their number, and a limit that has too few.

    The sender is notified when that limit has more.
    """
    lacking = None
    for limit in limits if len(limits) > 1 else ():
        if (permits := limit.permits(now)) < count:  # so that a send takes no permit of another limit
            count, lacking = permits, limit
    for limit in limits:
        if (begun := limit.begin(count, longest, now)) < count:
            count, lacking = begun, limit
    if lacking is not None:
        lacking.listen(sender, now)
    return count, lacking
