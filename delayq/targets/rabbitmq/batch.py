"""Messages on their way to RabbitMQ, and their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from delayq.base.clock import Clock
from delayq.targets import Result

#: ms that a batch waits for its confirms once the broker has reported that it reads no more.
WHEN_BLOCKED: Final = 500


class Outgoing:
    """One message, ready to be published: `method` and `header` are the contents of its first two frames."""

    __slots__ = ("body", "exchange", "header", "id", "method", "routing_key")

    def __init__(self, id: str, exchange: str, routing_key: str, method: bytes, header: bytes, body: bytes) -> None:
        self.id = id
        self.exchange = exchange
        self.routing_key = routing_key
        self.method = method
        self.header = header
        self.body = body


#: Messages of one exchange with their places in the batch.
Group = Sequence[tuple[int, Outgoing]]


class Batch:
    """Messages on their way, and their outcomes. The link's thread fills it, the sender's waits for it.

    Nobody waits after the deadline (monotonic ms), and nothing may be written after it.
    """

    def __init__(self, groups: Sequence[Group], size: int, clock: Clock, deadline: int) -> None:
        self.groups = groups  # each over a channel of its own
        self.deadline = deadline
        self._clock = clock
        self.results: list[Result | None] = [None] * size
        self.published = [False] * size
        self._left = sum(map(len, groups))
        self._condition = threading.Condition()
        self._over = self._left == 0
        self._blocked_at: int | None = None

    @property
    def over(self) -> bool:
        """Whether the caller has given it up."""
        return self._over

    def settle(self, place: int, result: Result) -> None:
        """Record the outcome of the message at this place; the first one counts."""
        if self.results[place] is None:
            self.results[place] = result
            self._left -= 1
            if not self._left:
                with self._condition:
                    self._over = True
                    self._condition.notify_all()

    def settle_rest_as(self, places: Sequence[int], result: Result) -> None:
        """Record the same outcome for several."""
        for place in places:
            self.settle(place, result)

    def settle_rest(self, places: Sequence[int], reason: str) -> None:
        """Record that the connection or the channel is gone: published messages are unknown, the others were not
        accepted.
        """
        for place in places:
            self.settle(place, Result.unknown(reason) if self.published[place] else Result.unavailable(reason))

    def blocked(self) -> None:
        """Record that the broker reads no more: wait a moment for the messages that it has already read."""
        with self._condition:
            if self._blocked_at is None:
                self._blocked_at = self._clock.monotonic()
                self._condition.notify_all()

    def wait(self) -> bool:
        """Wait until all are settled, at most until the deadline. Return whether they are."""
        deadline = self.deadline
        with self._condition:
            while not self._over:
                if self._blocked_at is not None:
                    deadline = min(deadline, self._blocked_at + WHEN_BLOCKED)
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._condition, left)
            done, self._over = self._over, True
            return done

    def publishing(self, group: Group) -> bool:
        """Mark a group as being sent; False if the caller has given it up, or its deadline has passed."""
        with self._condition:
            if self._over or self._clock.monotonic() >= self.deadline:
                return False
            for place, _ in group:
                self.published[place] = True
            return True

    @property
    def places(self) -> list[int]:
        """Return the places of all its messages."""
        return [place for group in self.groups for place, _ in group]
