"""What one route has of a queue's window, and whether its target takes more.

No route may fill the whole window, so that one that hangs leaves room for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from delayq.store.keys import ParkedSet
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.sending.circuit import PROBES
from workers.sending.forwarder import STALL, Forwarder, Report
from workers.sending.message import InFlightMessage

__all__ = ["Share"]


class Share:
    """At most so many messages on their way, of at most so many bytes. `InFlight` moves what is counted here."""

    def __init__(
        self, forwarder: Forwarder, most: int, most_bytes: int, parked: ParkedSets, lanes: Lanes, report: Report
    ) -> None:
        self.name = forwarder.route.name
        self.aside = ParkedSet.of_route(self.name)  # the set in which its messages are parked
        self.forwarder = forwarder
        self.waiting: list[InFlightMessage] = []  # for room, in order
        self.sending = 0
        self.bytes = 0  # of what is in flight, but for what is about to be parked
        self._report = report  # by which the forwarder knows its messages
        self._most = most
        self._most_bytes = most_bytes
        self._parked = parked
        self._lanes = lanes
        self.waiting_since: int | None = None  # monotonic ms
        self._typical = 1  # bytes of a message, by the last that found no room
        self._crowd = 0  # bytes that were in flight beside messages that did not fit in
        self._probes = 0  # that the circuit permits, and no message has yet

    # -- room --------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many messages more may be on their way, however large they are."""
        return min(self.forwarder.room, self._most - self.active)

    @property
    def limited(self) -> int:
        """How many messages wait at the forwarder for limits of their topics. They take no room."""
        return self.forwarder.limited_of(self._report)

    @property
    def active(self) -> int:
        """How many messages are being sent, or will be as soon as a thread is free."""
        return self.sending - self.limited

    @property
    def room_for_limited(self) -> int:
        """How many messages more may wait for limits: so many that others find room in the window."""
        return max(0, self._most // 2 - self.limited)

    @property
    def room_bytes(self) -> int:
        """How many bytes more may be in flight; below 0 if there are too many."""
        return self._most_bytes - self.bytes

    @property
    def stuck(self) -> bool:
        """Whether more would be in the others' way: there is no room, and that does not change quickly."""
        if self.room > 0 and (self.room_bytes >= 0 or not self.active):
            return False
        waited = self.forwarder.waited(self.waiting_since)
        return self.forwarder.stalled or self.aside in self._parked or waited > STALL

    @property
    def full_of_lanes(self) -> bool:
        """Whether the lanes have enough: what waits in them fills the window no less than what is being sent."""
        count = self._lanes.count(self.name)
        return count > 0 and (count >= self._most or self.room_bytes < 0)

    def _fitting(self, batch: Sequence[InFlightMessage]) -> int:
        """How many of a batch that is in flight there are bytes for; one always finds some."""
        count, beyond = len(batch), -self.room_bytes
        while count and beyond > 0:
            count -= 1
            beyond -= batch[count].size
        return count if count or self.active else 1

    def may_come_back(self, most: int) -> int:
        """How many parked messages may come back now, at most so many."""
        if self.waiting:
            return 0
        if self.broken:
            # Probes that were permitted and have not been sent yet stay permitted: others may have come back than can be.
            self._probes = self.forwarder.circuit.permit() or self._probes
            return self._probes
        if 0 < self._crowd <= self.bytes or self.forwarder.stalled:
            return 0
        heavy = self.room_bytes // self._typical
        if not self.active:
            heavy = max(1, heavy)
        return max(0, min(most, self.room, self._most - self._lanes.count(self.name), heavy))

    # -- the circuit -------------------------------------------------------------------------------------------------

    @property
    def broken(self) -> bool:
        """Whether the target is held for broken: its circuit is open."""
        return self.forwarder.circuit.open

    def gate(self) -> bool:
        """Whether messages may go as they come; while the circuit is open, ask it for probes."""
        if self.broken:
            self._probes = self._probes or self.forwarder.circuit.permit()
            return False
        self._probes = 0
        return not self.stuck

    def takes_permit(self) -> bool:
        """Whether a message may go as one of the probes that the circuit permits."""
        self._probes -= (permitted := self._probes > 0)
        return permitted

    def may_try(self, id: str) -> bool:
        """Whether this message may go besides: to see whether the target, or the message, is at fault."""
        return self.forwarder.circuit.may_try(id)

    def returns_permit(self) -> None:
        """A message that had a permit is not sent after all, so another one may be. Else nobody would ever see that the target is
        well, where each probe has to wait for something else than its target."""
        if self.broken:
            self._probes = min(PROBES, self._probes + 1)

    def probe_failed(self) -> None:
        """Let no more of the permitted probes go: the next pause has begun."""
        self._probes = 0

    # -- moved by the life of messages -------------------------------------------------------------------------------

    def admit(self, batch: list[InFlightMessage]) -> list[InFlightMessage]:
        """Those of a batch that find room, which may be sent now; the others wait, and behind others that wait, all do."""
        if self.waiting:
            self.waiting += batch
            return []
        fitting = self._fitting(batch)
        room = max(0, min(self.room, fitting))
        if room == len(batch):
            self._typical = 1
        else:
            self.waiting = batch[room:]
            if self.waiting_since is None:
                self.waiting_since = self.forwarder.now()
            if fitting < len(batch):
                self.crowded(self.waiting)
        return batch[:room]

    def sends(self, count: int) -> None:
        """So many are being sent from now on."""
        self.sending += count

    def crowded(self, batch: Sequence[InFlightMessage]) -> None:
        """These are in flight and too large for what is left: nothing parked need come back before a send has ended.

        Nor before what else is in flight has become less, as it may be dropped or parked too.
        """
        size = sum(message.size for message in batch)
        self._typical = size // len(batch)
        self._crowd = self.bytes - size

    def returned(self, count: int) -> None:
        """So many are no longer being sent."""
        self.sending -= count
        self._crowd = 0
