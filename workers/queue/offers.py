"""Messages that wait in memory for a limit of their topics: each goes to its forwarder in the very thread that brings what it
lacks, the lowest first. For a tick of a pull job, and a trip to Redis, that would stand idle, or end.

As many are offered as go in a moment, so each waits for about as long. Until one goes, its job may take it back.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from delayq.policies import Slots
from delayq.store.commands import Head
from workers.sending.forwarder import Forwarder
from workers.sending.message import Grant, InFlightMessage, Slot

__all__ = ["Leave", "Offer", "Offers", "Sends", "take_back"]

Leave = tuple[Grant | None, Slot | None]  # by which a message may be sent
Job = TypeVar("Job")


class Offer(msgspec.Struct, frozen=True, eq=False):
    """A message that goes to its forwarder, by `go`, as soon as there is leave for it, but not later than `until` (monotonic ms);
    `slots` are those of its topic."""

    message: InFlightMessage
    forwarder: Forwarder
    pauses: int
    until: int
    slots: Slots | None
    go: Callable[[Forwarder, Sequence[tuple[InFlightMessage, Leave]], int], None]

    @property
    def place(self) -> Head:
        """Its message's."""
        return self.message.place


class Sends:
    """Messages that go now: those together that go to the same forwarder."""

    def __init__(self) -> None:
        self._batches: list[tuple[Offer, list[tuple[InFlightMessage, Leave]]]] = []

    def add(self, offer: Offer, leave: Leave) -> None:
        """Its message goes."""
        for first, batch in self._batches:
            if (first.go, first.forwarder, first.pauses) == (offer.go, offer.forwarder, offer.pauses):
                batch.append((offer.message, leave))
                return
        self._batches.append((offer, [(offer.message, leave)]))

    def hand_over(self) -> None:
        """Let them go. Not under the lock of who keeps the offers: a forwarder has its own."""
        for first, batch in self._batches:
            first.go(first.forwarder, batch, first.pauses)


class Offers(Generic[Job]):
    """The messages of all jobs that wait for one limit. What is called holds the lock of who keeps them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Offer, Job]] = []  # the lowest first

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Offer]:
        return (offer for offer, _ in self._waiting)

    # -- how many ----------------------------------------------------------------------------------------------------

    def room(self, most: int) -> int:
        """How many messages more may be offered, if so many may at a time."""
        return max(0, most - len(self._waiting))

    def open(self, most: int) -> int:
        """For how many held messages there is room: they are filled up once half of them have gone, as each that came back by
        itself would cost a trip."""
        room = self.room(most)
        return room if room >= len(self._waiting) else 0

    # -- who ---------------------------------------------------------------------------------------------------------

    def add(self, offers: Sequence[Offer], job: Job) -> None:
        """They wait from now on."""
        for offer in offers:
            insort(self._waiting, (offer, job), key=_place)

    def match(self, now: int, leave: Callable[[Offer, Job], Leave | None], sends: Sends) -> list[Job]:
        """Those go for which there is leave. Returns the jobs that have to take back what is too late, or has a target that is
        held for broken."""
        stay: list[tuple[Offer, Job]] = []
        late: list[Job] = []
        for offer, job in self._waiting:
            if offer.until <= now or offer.forwarder.circuit.open:
                late.append(job)
            elif (found := leave(offer, job)) is not None:
                sends.add(offer, found)
                continue
            stay.append((offer, job))
        self._waiting = stay
        return late

    def take_back(self, job: Job, which: Callable[[InFlightMessage], bool]) -> tuple[list[InFlightMessage], int]:
        """Such messages of a job, which wait no more, and how many of its others do."""
        mine = [offer.message for offer, one in self._waiting if one is job]
        if taken := [message for message in mine if which(message)]:
            gone = set(taken)
            self._waiting = [one for one in self._waiting if one[0].message not in gone]
        return taken, len(mine) - len(taken)


def take_back(
    limits: Iterable[Offers[Job]], job: Job, which: Callable[[InFlightMessage], bool]
) -> tuple[list[InFlightMessage], bool]:
    """Such messages of a job, whichever limit they wait for, which they do no more; and whether others of it do."""
    found, left = list[InFlightMessage](), 0
    for offers in limits:
        taken, others = offers.take_back(job, which)
        found += taken
        left += others
    return found, left > 0


def _place(one: tuple[Offer, object]) -> Head:
    return one[0].place
