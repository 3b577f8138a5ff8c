"""Sends rows to Redis from one task, and says of each what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from delayq.client import Client
from delayq.clock import Clock
from delayq.errors import Conflict, DelayqError, InvalidMessage, PastDue, StoreError, StoreFull, StoreUnavailable
from delayq.message import Message, State
from delayq.operations import Scheduled
from delayq.spark.patience import Patience
from delayq.spark.sameness import same_message

__all__ = ["Outcome", "Sender", "reason_of"]

Outcome = Scheduled | DelayqError


class Sender:
    """Schedules, again and again while Redis is away or full, for at most `retry_for` ms without any progress."""

    def __init__(self, client: Client, clock: Clock, *, retry_for: int, refuse_past: bool) -> None:
        self._client = client
        self._clock = clock
        self._retry_for = retry_for
        self._refuse_past = refuse_past

    def send(self, rows: Iterable[Message | InvalidMessage]) -> list[Outcome]:
        """What became of each row, in order; raises GivenUp."""
        given: list[Message | InvalidMessage] = []

        def messages() -> Iterator[Message]:
            for row in rows:
                given.append(row)
                if type(row) is Message:
                    yield row

        answers = self._client.schedule_many(messages(), refuse_past=self._refuse_past)
        if len(answers) == len(given) and not any(isinstance(one, (StoreError, Conflict)) for one in answers):
            return answers  # nearly always
        sent = [(place, row) for place, row in enumerate(given) if isinstance(row, Message)]
        outcomes: list[Any] = list(given)
        self._take(outcomes, sent, answers)
        self._again(outcomes, sent)
        self._look_at_conflicts(outcomes, sent)
        return outcomes

    @staticmethod
    def _take(outcomes: list[Any], sent: list[tuple[int, Message]], answers: list[Any]) -> None:
        for (place, _), answer in zip(sent, answers, strict=True):
            outcomes[place] = answer

    def _again(self, outcomes: list[Any], sent: list[tuple[int, Message]]) -> None:
        """Send again what Redis could not take, or nobody knows whether it did: with its id, so only once."""
        patience = Patience(self._clock, self._retry_for)
        while left := [(place, row) for place, row in sent if isinstance(outcomes[place], StoreError)]:
            if len(left) < len(sent):
                patience.progress()
            patience.bear(_worst([outcomes[place] for place, _ in left]))
            sent = left
            rows = (row for _, row in left)
            self._take(outcomes, left, self._client.schedule_many(rows, refuse_past=self._refuse_past))

    def _look_at_conflicts(self, outcomes: list[Any], sent: list[tuple[int, Message]]) -> None:
        """Another run of the same rows differs by nothing but its name: its messages are there already."""
        taken = [
            (place, row) for place, row in sent if isinstance(one := outcomes[place], Conflict) and not one.cancelled
        ]
        if not taken:
            return
        ids = [outcomes[place].id for place, _ in taken]
        patience = Patience(self._clock, self._retry_for)
        for (place, row), found in zip(taken, patience.through(lambda: self._client.get_many(ids)), strict=True):
            # One that is gone has just ended, and nothing is known of what it was.
            if found is not None and found.record is not None and same_message(found.record, row):
                outcomes[place] = Scheduled(found.id, found.queue, found.due, created=False)
            elif found is not None and found.state == State.DELIVERED:
                outcomes[place] = Scheduled(found.id, found.queue, None, State.DELIVERED, created=False)


def _worst(errors: list[StoreError]) -> StoreError:
    """One that will not pass by itself, if there is any."""
    return next((one for one in errors if not isinstance(one, (StoreUnavailable, StoreFull))), errors[0])


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
