"""A message that this node has pulled and not settled."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum

from delayq.domain.codec import Record
from delayq.domain.routes import Route
from workers.limits.limit import Limit

#: ms after its pull for which a message may be sent without another pull.
LOOK_AGAIN = 500


class Stage(Enum):
    """The stage of a message in its owner's memory. workers/queue/in_flight.py has a drawing of the moves between stages."""

    PULLED = "pulled"  # a message with an ordering key may wait behind others of its key
    WAITING = "waiting"  # for room at its sender
    SENDING = "sending"  # its sender has it
    RETURNED = "returned"  # its sender has reported the result
    ACKING = "acking"  # it was delivered, and Redis has to remove it
    SETTLING = "settling"  # Redis has to count its failed attempt, or to bury it
    PARKING = "parking"  # Redis has to park it
    BACKING_OFF = "backing off"  # Redis has counted its failure; it has an ordering key, and keeps its place
    GONE = "gone"  # it has left this memory

    __hash__ = object.__hash__  # the one of Enum is slow, and each message needs it several times


class Probe(IntEnum):
    """Whether a message is sent through an open circuit, as a probe of its target."""

    NONE = 0
    PERMITTED = 1  # with a permit of the circuit, which is returned if the message is not sent
    # Without a permit: a caller delivers it now, or it helps to find out who is at fault, or it was sent before.
    FREE = 2


class InFlightMessage:
    """A pulled message: a `Delivery` to targets, and `AsPulled` to the commands that settle it.

    Only `InFlight` changes it. Raises CorruptRecord if the record cannot be read or delivered.
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
        "released",
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
        self.weight = 1  # in its queue's window
        self.pulled_at = score if pulled_at is None else pulled_at  # Unix ms by the clock of pulls
        self.route: Route | None = None
        self.stage = Stage.PULLED
        self.by_hand = False  # a caller delivers it now, also through an open circuit
        self.by_force = False  # also in spite of pauses and limits
        self.released = False  # it comes from a parked set
        self.limits: tuple[Limit, ...] = ()  # it needs a permit of each
        self.probe = Probe.NONE
        self.pause = 0  # ms of its back-off after Redis has counted its failure
        self.again_at = 0  # monotonic ms at which its back-off ends, and it is pulled again

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
        """The due time that the caller wanted, which consumers see."""
        return self.record.asked

    @property
    def attempt(self) -> int:
        return self.attempts + 1

    @property
    def digest(self) -> int | None:
        return self.record.digest if self.record.remembered else None

    @property
    def place(self) -> tuple[int, bytes]:
        """Its place in the queue: the due time, then the ticket."""
        return self.score, self.ticket

    def stale(self, now: int) -> bool:
        """Whether it must be pulled again before a send, because it has waited or a clock was set back."""
        return now < self.score or not 0 <= now - self.pulled_at <= LOOK_AGAIN

    def expired(self, now: int) -> bool:
        """Whether it has expired."""
        expires = self.record.expires_at
        return expires is not None and now >= expires
