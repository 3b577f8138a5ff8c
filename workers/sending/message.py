"""A message that this node has pulled and not settled yet."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum

from delayq.codec import Record
from delayq.routes import Route
from workers.limits.limit import Limit

__all__ = ["LOOK_AGAIN", "InFlightMessage", "Probe", "Stage"]

#: ms after its pull for which a message may be sent without another look at what Redis has of it.
LOOK_AGAIN = 500


class Stage(Enum):
    """Where a message is in its owner's memory; workers/queue/in_flight.py draws the moves between them."""

    PULLED = "pulled"  # with an ordering key it may wait behind others of its key
    WAITING = "waiting"  # for room at its sender
    SENDING = "sending"  # its sender has it
    RETURNED = "returned"  # its sender has reported, and the result is being judged
    ACKING = "acking"  # it was delivered, and Redis does not know yet
    SETTLING = "settling"  # it is retried or buried, and Redis does not know yet
    PARKING = "parking"  # it is parked, and Redis does not know yet
    BACKING_OFF = "backing off"  # with an ordering key: Redis has counted its failure, and it keeps its place
    GONE = "gone"  # from this memory

    __hash__ = object.__hash__  # that of Enum runs Python code, several times for each message


class Probe(IntEnum):
    """Whether a message is sent through an open circuit, to find out whether the target is well again."""

    NONE = 0
    PERMITTED = 1  # by a permit of the circuit, which is returned if the message is not sent
    FREE = 2  # without a permit: it was delivered now, is tried beside others that failed, or was sent before


class InFlightMessage:
    """A pulled message: a `Delivery` to targets, and `AsPulled` to the commands that settle it.

    All that may change in it is changed by `InFlight`. Raises CorruptRecord if the record cannot be read, or delivered.
    """

    __slots__ = (
        "again_at",
        "attempts",
        "by_force",
        "by_hand",
        "limits",
        "pause",
        "probe",
        "pulled_at",
        "record",
        "route",
        "score",
        "size",
        "stage",
        "ticket",
        "weight",
    )

    def __init__(self, ticket: bytes, score: int, attempts: int, raw: bytes, pulled_at: int | None = None) -> None:
        self.ticket = ticket
        self.score = score
        self.attempts = attempts
        self.record = Record(raw)
        self.record.check_deliverable()
        self.size = len(raw)
        self.weight = 1  # in the window of its queue
        self.pulled_at = score if pulled_at is None else pulled_at  # Unix ms by the clock that pulls go by
        self.route: Route | None = None
        self.stage = Stage.PULLED
        self.by_hand = False  # somebody had it delivered now: it goes past an open circuit, too
        self.by_force = False  # and in spite of pauses and limits
        self.limits: tuple[Limit, ...] = ()  # each of which it needs a permit of
        self.probe = Probe.NONE
        self.pause = 0  # ms for which it backs off once Redis has counted its failure
        self.again_at = 0  # monotonic ms at which one that backs off is pulled anew

    @property
    def id(self) -> str:
        return self.ticket[:-8].decode()

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def tags(self) -> str:
        return self.record.tags

    @property
    def keys(self) -> tuple[str, ...]:
        return self.record.keys

    @property
    def index_keys(self) -> tuple[str, ...]:
        return self.record.index_keys

    @property
    def properties(self) -> Mapping[str, str]:
        return self.record.properties

    @property
    def ordering_key(self) -> str:
        return self.record.ordering_key

    @property
    def payload(self) -> bytes:
        return self.record.payload

    @property
    def content_type(self) -> str:
        return self.record.content_type

    @property
    def due(self) -> int:
        """The due that was asked for, which consumers see."""
        return self.record.asked

    @property
    def attempt(self) -> int:
        return self.attempts + 1

    @property
    def digest(self) -> int | None:
        return self.record.digest if self.record.remembered else None

    @property
    def place(self) -> tuple[int, bytes]:
        """Its place in the queue: by due, equal dues by id."""
        return self.score, self.ticket

    def stale(self, now: int) -> bool:
        """Whether it is to be pulled anew before it is sent: it has waited, or a clock was set back since its pull."""
        return now < self.score or not 0 <= now - self.pulled_at <= LOOK_AGAIN

    def good_for(self, now: int) -> int:
        """ms for which it may be sent as it is, if no clock is set back."""
        expires = self.record.expires_at
        until = self.pulled_at + LOOK_AGAIN
        return (until if expires is None else min(until, expires)) - now

    def expired(self, now: int) -> bool:
        """Whether it is too late to forward it."""
        expires = self.record.expires_at
        return expires is not None and now >= expires
