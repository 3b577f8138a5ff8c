"""Lanes: only one message of an ordering key of a topic is sent at a time. The others wait, by their due times."""

from __future__ import annotations

from bisect import insort

from delayq.store.keys import ParkedSet
from workers.sending.message import InFlightMessage, Stage

#: The most messages of one lane in flight. Further ones are parked under the lane's name.
MOST = 16
#: Parked messages may come back when a lane has no more messages in flight than these.
LOW = 4


def _place(message: InFlightMessage) -> tuple[int, bytes]:
    return message.place


class Lanes:
    """The messages in flight of each ordering key of a topic. Only the first message of a lane may be sent.

    Only `InFlight` calls `enter` and `leave`.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, list[InFlightMessage]] = {}
        self._weights: dict[str, int] = {}  # by route

    def clear(self) -> None:
        """Forget all messages."""
        self._lanes.clear()
        self._weights.clear()

    @staticmethod
    def name(message: InFlightMessage) -> str:
        """The name of a message's lane, which is also the name of the lane's parked set."""
        return ParkedSet.of_lane(message.topic, message.ordering_key)

    def full(self, message: InFlightMessage) -> bool:
        """Whether the message's lane has no room."""
        return len(self._lanes.get(self.name(message), ())) >= MOST

    def low(self, name: str) -> bool:
        """Whether few messages of a lane are in flight, so that parked ones may come back."""
        return len(self._lanes.get(name, ())) <= LOW

    def weight(self, route: str) -> int:
        """The weight of the messages in a route's lanes."""
        return self._weights.get(route, 0)

    def enter(self, message: InFlightMessage) -> bool:
        """Insert a message by its place; True if it is the first and may be sent."""
        lane = self._lanes.setdefault(self.name(message), [])
        route = message.route.name if message.route is not None else ""
        self._weights[route] = self._weights.get(route, 0) + message.weight
        # No message passes the first one while it is sent, or while Redis does not know its outcome.
        first_stays = bool(lane) and lane[0].stage not in (Stage.PULLED, Stage.BACKING_OFF)
        insort(lane, message, lo=int(first_stays), key=_place)
        return lane[0] is message and message.stage is Stage.PULLED

    def clear_from(self, message: InFlightMessage) -> list[InFlightMessage]:
        """Remove the message and all that wait behind it; return them."""
        cleared = [message]
        if message.record.keyed:
            lane = self._lanes.get(self.name(message), [])
            if message in lane:
                cleared = lane[lane.index(message) :]
                for one in cleared:
                    self.leave(one)
        return cleared

    def leave(self, message: InFlightMessage) -> InFlightMessage | None:
        """Remove a message; return the message that may be sent now, if there is one."""
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
        """The messages that wait for their back-off at the head of a lane."""
        if not self._lanes:
            return []
        return [lane[0] for lane in self._lanes.values() if lane[0].stage is Stage.BACKING_OFF]
