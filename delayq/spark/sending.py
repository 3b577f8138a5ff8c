"""Sends rows to Redis from one task, and says of each what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from delayq.client import Client
from delayq.clock import Clock
from delayq.errors import Conflict, DelayqError, InvalidMessage, PastDue, StoreError, StoreFull, StoreUnavailable
from delayq.message import Message
from delayq.operations import Scheduled
from delayq.spark.sameness import same_message

__all__ = ["GivenUp", "Outcome", "Sender", "pause"]

Outcome = Scheduled | DelayqError
#: How long to wait before a further try, in ms; the last one again and again.
PAUSES: Final = (100, 300, 1_000, 2_000, 5_000)


class GivenUp(DelayqError):
    """A task could not go on; what it had scheduled stays, and a rerun completes the rest."""


def pause(clock: Clock, ms: int) -> None:
    """Wait for so many ms."""
    never = threading.Condition()
    with never:
        clock.wait(never, ms)


class Sender:
    """Schedules, again and again while Redis is away or full, for at most `retry_for` ms without any progress."""

    def __init__(self, client: Client, clock: Clock, *, retry_for: int, refuse_past: bool) -> None:
        self._client = client
        self._clock = clock
        self._retry_for = retry_for
        self._refuse_past = refuse_past

    def send(self, rows: Iterable[Message | InvalidMessage]) -> list[Outcome]:
        """What became of each row, in order; raises GivenUp."""
        outcomes: list[Any] = []
        sent: list[tuple[int, Message]] = []

        def messages() -> Iterator[Message]:
            for place, row in enumerate(rows):
                outcomes.append(row)
                if isinstance(row, Message):
                    sent.append((place, row))
                    yield row

        self._take(outcomes, sent, self._client.schedule_many(messages(), refuse_past=self._refuse_past))
        self._again(outcomes, sent)
        self._look_at_conflicts(outcomes, sent)
        return outcomes

    @staticmethod
    def _take(outcomes: list[Any], sent: list[tuple[int, Message]], answers: list[Any]) -> None:
        for (place, _), answer in zip(sent, answers, strict=True):
            outcomes[place] = answer

    def _again(self, outcomes: list[Any], sent: list[tuple[int, Message]]) -> None:
        """Send again what Redis could not take, or nobody knows whether it did: with its id, so only once."""
        tries, since = 0, self._clock.monotonic()
        while left := [(place, row) for place, row in sent if isinstance(outcomes[place], StoreError)]:
            for place, _ in left:
                if not isinstance(outcomes[place], (StoreUnavailable, StoreFull)):
                    raise GivenUp(f"Redis does not take these messages: {outcomes[place]}") from None
            if len(left) < len(sent):
                tries, since = 0, self._clock.monotonic()
            waited = self._clock.monotonic() - since
            if waited >= self._retry_for:
                raise self._given_up(outcomes[left[0][0]], waited)
            pause(self._clock, min(PAUSES[min(tries, len(PAUSES) - 1)], self._retry_for - waited))
            tries += 1
            sent = left
            rows = (row for _, row in left)
            self._take(outcomes, left, self._client.schedule_many(rows, refuse_past=self._refuse_past))

    def patiently(self, step: Callable[[], Any]) -> Any:
        """What `step` returns, tried again while Redis is away; raises GivenUp."""
        tries, since = 0, self._clock.monotonic()
        while True:
            try:
                return step()
            except (StoreUnavailable, StoreFull) as error:
                waited = self._clock.monotonic() - since
                if waited >= self._retry_for:
                    raise self._given_up(error, waited) from None
                pause(self._clock, min(PAUSES[min(tries, len(PAUSES) - 1)], self._retry_for - waited))
                tries += 1
            except StoreError as error:
                raise GivenUp(f"Redis does not do what it is asked: {error}") from None

    @staticmethod
    def _given_up(error: StoreError, waited: int) -> GivenUp:
        return GivenUp(
            f"{error}; this task gave up after {waited / 1000:.0f} s without progress (option retryFor). "
            "What it had scheduled stays; run the same job again to complete it, nothing is scheduled twice"
        )

    def _look_at_conflicts(self, outcomes: list[Any], sent: list[tuple[int, Message]]) -> None:
        """Another run of the same rows differs by nothing but its name: its messages are there already."""
        taken = [
            (place, row)
            for place, row in sent
            if isinstance(one := outcomes[place], Conflict) and not one.cancelled
        ]
        if not taken:
            return
        ids = [outcomes[place].id for place, _ in taken]
        for (place, row), found in zip(taken, self.patiently(lambda: self._client.get_many(ids)), strict=True):
            if found is None:
                continue  # it has just ended, and of what it was nothing is known
            if found.record is None or same_message(found.record, row):
                state = "scheduled" if found.record is not None else found.state
                outcomes[place] = Scheduled(found.id, found.queue, found.due, state, created=False)


def reason_of(error: DelayqError) -> str:
    """The kind of an error in one word, as rejected rows and totals have it."""
    if isinstance(error, Conflict):
        return "cancelled" if error.cancelled else "conflict"
    if isinstance(error, PastDue):
        return "past"
    if isinstance(error, InvalidMessage):
        return _REASONS.get(error.field, error.field)
    return "error"


_REASONS: Final = {
    "delayTime": "due", "expectDate": "due", "delayLevel": "due", "orderingKey": "ordering_key",
    "maxAttempts": "max_attempts", "expireAfter": "expire_after", "bodyType": "body",
}  # fmt: skip
