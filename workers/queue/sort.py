"""Where a pulled message goes from here: to its target, behind its ordering key, or aside."""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import Enum

from workers.queue.ordering import Lanes
from workers.queue.parked_sets import NO_ROUTE, ParkedSets, of_route
from workers.queue.settlement import Bury, Park
from workers.sending.message import InFlightMessage

__all__ = ["Way", "sort"]


class Way(Enum):
    """Ways on that Redis need not be told of."""

    TO_TARGET = "to its target"
    PULL_ANEW = "pull it anew"


def sort(
    message: InFlightMessage,
    now: int,
    *,
    targets: Container[str],
    refused: Mapping[str, str],
    parked: ParkedSets,
    lanes: Lanes,
) -> Way | Bury | Park:
    """Decide it by what is known: the routes that have a target, the topics whose streams take nothing (and why), what
    is parked, and what else is in flight of the message's ordering key."""
    route = message.route
    if route is None:
        return Park(NO_ROUTE)
    if message.expired(now):
        return Bury("expired")
    if route.name not in targets:  # so its topic is a stream in the same Redis
        error = refused.get(message.topic)
        if error is None:
            return Way.PULL_ANEW  # the pull did not know of the stream; the next one is told
        if error.startswith("WRONGTYPE"):
            return Bury(f"the key {route.stream_of(message.topic)} is not a stream")
        return Park(of_route(route.name))
    if message.record.keyed:
        lane = lanes.name(message)
        for name in (of_route(route.name), lane):
            if parked.holds_up(name, message.place):
                return Park(name)
        if lanes.full(message):
            return Park(lane)
    return Way.TO_TARGET
