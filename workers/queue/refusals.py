"""Topics whose stream in this Redis takes nothing: the user of delayq may not write to it, or its ids have come to an end.

Their messages are set aside like those of any target that is down, and the streams are asked now and then.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from delayq.routes import Routes
from workers.queue.parked_sets import ParkedSets, of_route

__all__ = ["Refusals"]

FIRST_PAUSE = 1_000
LONGEST_PAUSE = 30_000
log = structlog.get_logger()


class _Refusal(msgspec.Struct):
    """Why a stream takes nothing (None: it takes messages again), and when to ask it (monotonic ms)."""

    name: str  # of the set in which its route's messages are parked
    reason: str | None
    ask_at: int
    pause: int


class Refusals:
    """Of one queue. A stream that refuses again soon after it was found well is asked at longer intervals."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._topics: dict[str, _Refusal] = {}
        self._returning: set[str] = set()

    @property
    def reasons(self) -> Mapping[str, str]:
        """The topics, and why their streams take nothing."""
        return {topic: one.reason for topic, one in list(self._topics.items()) if one.reason is not None}

    def add(self, topic: str, reason: str, now: int) -> None:
        """Its stream takes nothing."""
        known = self._topics.get(topic)
        pause = FIRST_PAUSE if known is None else min(LONGEST_PAUSE, 2 * known.pause)
        if known is None or known.reason is None:
            log.error("stream_refuses", topic=topic, error=reason)
        route = self._routes.find(topic)
        self._topics[topic] = _Refusal(of_route(route.name if route is not None else ""), reason, now + pause, pause)

    def to_ask(self, now: int) -> list[str]:
        """The topics whose streams are to be asked now. What was found well for long is forgotten."""
        for topic, one in list(self._topics.items()):
            if one.reason is None and now >= one.ask_at:
                del self._topics[topic]
        return [topic for topic, one in self._topics.items() if one.reason is not None and now >= one.ask_at]

    def end(self, topic: str, now: int) -> None:
        """Its stream takes messages again: what is parked for its route comes back."""
        one = self._topics[topic]
        one.reason, one.ask_at = None, now + 2 * LONGEST_PAUSE
        self._returning.add(one.name)
        log.warning("stream_takes", topic=topic)

    def keep_parked(self, name: str) -> bool:
        """Whether a stream refuses for which messages are parked in this set, and none of the set takes them again."""
        return name not in self._returning and any(
            one.reason is not None and one.name == name for one in self._topics.values()
        )

    def forget_returned(self, parked: ParkedSets) -> None:
        """Of sets that are not parked any more, all has come back."""
        self._returning = {name for name in self._returning if name in parked}
