"""The share of one route in a queue's window, and whether its target accepts more messages.

No route may fill the entire window, so that a target that hangs leaves room for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.store.keys import ParkedSet
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.sending.groups import Report
from workers.sending.message import InFlightMessage
from workers.sending.sender import STALL, Sender


class Share:
    """Room for messages with a total weight of `most`. Only `InFlight` changes its counts."""

    def __init__(self, sender: Sender, most: int, parked: ParkedSets, lanes: Lanes, report: Report) -> None:
        self.name = sender.route.name
        self.parked_set = ParkedSet.of_route(self.name)  # the set in which its messages are parked
        self.sender = sender
        self.waiting: list[InFlightMessage] = []  # for room, in order
        self.sending = 0  # the weight of the messages that its sender has
        self._report = report  # by this the sender finds the messages of the queue
        self._most = most
        self._parked = parked
        self._lanes = lanes
        self.waiting_since: int | None = None  # monotonic ms
        self._needed = 1  # the weight of the last message without room

    # -- room --------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The weight of further messages that may be sent."""
        return min(self.sender.room, self._most - self.active)

    @property
    def limited(self) -> int:
        """The weight of messages that wait at the sender for limits of their topics. They take no room."""
        return self.sender.limited_of(self._report)

    @property
    def active(self) -> int:
        """The weight of messages that are being sent, or will be as soon as a thread is free."""
        return self.sending - self.limited

    @property
    def room_for_limited(self) -> int:
        """The weight of further messages that may wait for limits, so that others find room in the window."""
        return max(0, self._most // 2 - self.limited)

    @property
    def stuck(self) -> bool:
        """Whether further messages would block other routes: there is no room, and none is expected soon."""
        room, needed = self.room, self.waiting[0].weight if self.waiting else self._needed
        if room >= needed or (room > 0 and not self.active):
            return False
        waited = self.sender.waited(self.waiting_since)
        return self.sender.stalled or self.parked_set in self._parked or waited > STALL

    @property
    def full_of_lanes(self) -> bool:
        """Whether the messages that wait in lanes fill the share."""
        return self._lanes.weight(self.name) >= self._most

    def _fitting(self, batch: Sequence[InFlightMessage]) -> int:
        """How many messages of a batch find room. If no message is being sent, one finds room, however heavy it is."""
        room, count = self.room, 0
        for message in batch:
            room -= message.weight
            if room < 0 and (count or self.active or room + message.weight <= 0):
                break
            count += 1
        return count

    def may_come_back(self, most: int) -> int:
        """How many parked messages may come back now, `most` at most."""
        if self.waiting:
            return 0
        if self.broken:
            return self.sender.circuit.permits(self)
        if self.sender.stalled:
            return 0
        room = self.room
        if self.active or room <= 0:
            room //= self._needed
        else:
            room = max(1, room // self._needed)
        return max(0, min(most, room, self._most - self._lanes.weight(self.name)))

    # -- the circuit -------------------------------------------------------------------------------------------------

    @property
    def broken(self) -> bool:
        """Whether the circuit of the target is open."""
        return self.sender.circuit.open

    def takes_all(self) -> bool:
        """Whether all messages are sent, not only probes."""
        return not (self.broken or self.stuck)

    # -- moved by the life of messages -------------------------------------------------------------------------------

    def wait(self, batch: list[InFlightMessage]) -> None:
        """Put messages that found no room before the others that wait."""
        self.waiting = batch + self.waiting
        if batch and self.waiting_since is None:
            self.waiting_since = self.sender.now()

    def fit(self, batch: list[InFlightMessage]) -> list[InFlightMessage]:
        """Return the messages of a batch that find room. The others wait; if earlier messages wait, all of them do."""
        if self.waiting:
            self.waiting += batch
            return []
        fitting = self._fitting(batch)
        if fitting == len(batch):
            self._needed = 1
            return batch
        self.waiting = batch[fitting:]
        self._needed = self.waiting[0].weight
        if self.waiting_since is None:
            self.waiting_since = self.sender.now()
        return batch[:fitting]
