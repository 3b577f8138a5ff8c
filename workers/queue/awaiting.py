"""Messages of one queue for streams in this Redis that wait in memory for permits of their limits.

Once there are permits, the owner pulls the messages again, and that pull appends them.
"""

from __future__ import annotations

from collections.abc import Iterator

from delayq.base.clock import Clock
from delayq.domain.policies import Policies
from workers.limits.asking import NodeLimits
from workers.limits.limit import Limit, Listener
from workers.sending.message import InFlightMessage


class AwaitingPermits:
    """Holds at most `most` messages. Limits notify `listener` of permits."""

    def __init__(self, limits: NodeLimits, clock: Clock, listener: Listener, most: int) -> None:
        self._limits = limits
        self._clock = clock
        self._listener = listener
        self._most = most
        self._topics: dict[str, tuple[Limit, dict[bytes, InFlightMessage]]] = {}  # by topic

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __iter__(self) -> Iterator[InFlightMessage]:
        return iter([message for _, some in self._topics.values() for message in some.values()])

    def add(self, message: InFlightMessage, policies: Policies) -> bool:
        """Let a message wait, unless too many wait or the limit is short."""
        now, topic, limit = self._clock.monotonic(), message.topic, self._limits.rate(message.topic, policies)
        room = self._most - sum([len(some) for _, some in self._topics.values()])
        if limit is None or room <= 0 or not limit.admit(self._listener, 1, message.place, room, now):
            return False
        self._topics.setdefault(topic, (limit, {}))[1][message.ticket] = message
        limit.listen(self._listener, now)
        return True

    def remove(self, message: InFlightMessage) -> None:
        """Note that a message no longer waits."""
        limit, some = self._topics.get(message.topic, (None, {}))
        if limit is not None and some.pop(message.ticket, None) is not None:
            limit.withdraw(1)
            if not some:
                del self._topics[message.topic]

    def count_of(self, limit: Limit) -> int:
        """The number of messages that wait for a limit. Any thread may call this."""
        return sum([len(some) for one, some in list(self._topics.values()) if one is limit])

    def with_permits(self) -> list[InFlightMessage]:
        """The messages whose limits have permits."""
        now = self._clock.monotonic()
        return [one for limit, some in self._topics.values() if limit.has_permits(now) for one in some.values()]
