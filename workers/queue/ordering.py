"""Lanes: of one ordering key of a topic only one message is on its way. The others wait behind it, in due order."""

from __future__ import annotations

from bisect import insort

from delayq.store.keys import ParkedSet
from workers.sending.message import InFlightMessage, Stage

__all__ = ["MOST", "Lanes"]

#: Messages of one lane in flight; beyond that they are parked under the lane's name.
MOST = 16
LOW = 4


def _place(message: InFlightMessage) -> tuple[int, bytes]:
    return message.place


class Lanes:
    """The messages in flight of each ordering key of a topic. The first of a lane may be on its way, the others wait.

    Only `InFlight` lets them enter and leave.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, list[InFlightMessage]] = {}
        self._weights: dict[str, int] = {}  # by route

    def clear(self) -> None:
        """Forget all of them."""
        self._lanes.clear()
        self._weights.clear()

    @staticmethod
    def name(message: InFlightMessage) -> str:
        """The name of its lane, and of the set in which messages are parked that the lane has no room for."""
        return ParkedSet.of_lane(message.topic, message.ordering_key)

    def full(self, message: InFlightMessage) -> bool:
        """Whether as many of the message's lane are in flight as may be."""
        return len(self._lanes.get(self.name(message), ())) >= MOST

    def low(self, name: str) -> bool:
        """Whether few messages of a lane are in flight, so that parked ones may come back."""
        return len(self._lanes.get(name, ())) <= LOW

    def weight(self, route: str) -> int:
        """The weight of the messages in a route's lanes."""
        return self._weights.get(route, 0)

    def enter(self, message: InFlightMessage) -> bool:
        """Take a place by due; True if it is the first and may go."""
        lane = self._lanes.setdefault(self.name(message), [])
        route = message.route.name if message.route is not None else ""
        self._weights[route] = self._weights.get(route, 0) + message.weight
        # Nothing passes one that was let go, or of which Redis has yet to be told.
        first_stays = bool(lane) and lane[0].stage not in (Stage.PULLED, Stage.BACKING_OFF)
        insort(lane, message, lo=int(first_stays), key=_place)
        return lane[0] is message and message.stage is Stage.PULLED

    def clear_from(self, message: InFlightMessage) -> list[InFlightMessage]:
        """The message, and those that wait behind it; all of them leave."""
        cleared = [message]
        if message.record.keyed:
            lane = self._lanes.get(self.name(message), [])
            if message in lane:
                cleared = lane[lane.index(message) :]
                for one in cleared:
                    self.leave(one)
        return cleared

    def leave(self, message: InFlightMessage) -> InFlightMessage | None:
        """Give up the place; the one that may go now, if any."""
        name = self.name(message)
        lane = self._lanes.get(name)
        if lane is None or message not in lane:
            return None
        first = lane[0] is message
        lane.remove(message)
        self._weights[message.route.name if message.route is not None else ""] -= message.weight
        if not lane:
            del self._lanes[name]
            return None
        return lane[0] if first and lane[0].stage is Stage.PULLED else None

    def backing_off(self) -> list[InFlightMessage]:
        """The first of each lane whose back-off is running."""
        if not self._lanes:
            return []
        return [lane[0] for lane in self._lanes.values() if lane[0].stage is Stage.BACKING_OFF]
