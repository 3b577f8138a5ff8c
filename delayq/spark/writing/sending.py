"""Sends rows to Redis from one task, and returns the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo
from typing import Any, Final, NamedTuple

import pyarrow as pa

from delayq import http
from delayq.base.clock import Clock
from delayq.base.errors import (
    Conflict,
    DelayqError,
    InvalidMessage,
    PastDue,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooManyPending,
)
from delayq.client.client import Client
from delayq.client.scheduling.schedule import Scheduled, schedule_ready
from delayq.domain.message import Message, State
from delayq.spark.options import WriteOptions
from delayq.spark.rows.column_encoder import plain_rows
from delayq.spark.rows.records import same_message
from delayq.spark.rows.rows import messages_of
from delayq.spark.writing.retrying import Patience

Outcome = Scheduled | DelayqError


class Sent(NamedTuple):
    """The number of rows that were simply scheduled, and the outcomes of all others, by their places in the batch."""

    scheduled: int
    others: dict[int, Outcome]


class Sender:
    """Schedules, with retries while Redis is unreachable or full, for at most `retry_for` ms without any progress."""

    def __init__(self, client: Client | http.Client, clock: Clock, options: WriteOptions) -> None:
        self._client = client
        self._clock = clock
        self._options = options
        self._retry_for = options.retry_for
        self._refuse_past = options.past != "now"

    def send(self, batch: pa.RecordBatch, zone: Callable[[], tzinfo]) -> Sent:
        """Schedule a batch; raises GivenUp."""
        count, others = self._send_plain(batch, zone)
        left = [place for place, one in others.items() if one is None or isinstance(one, (StoreError, Conflict))]
        if left:
            part = batch if len(left) == batch.num_rows else batch.take(pa.array(left, pa.int64()))
            others |= zip(left, self._send_rows(messages_of(part, self._options, zone)), strict=True)
        outcomes = {place: one for place, one in others.items() if one is not None}
        return Sent(count, outcomes)

    def _send_plain(self, batch: pa.RecordBatch, zone: Callable[[], tzinfo]) -> tuple[int, dict[int, Outcome | None]]:
        """Schedule the plain rows of a batch: how many were scheduled just so, and the others; None: not looked at."""
        client = self._client
        if not isinstance(client, Client):  # the API takes messages
            return 0, dict.fromkeys(range(batch.num_rows))
        try:
            context = client.context()
            client.learn_routes()
            plain = plain_rows(batch, self._options, context, self._clock.now(), zone)
        except StoreError:
            plain = None
        if plain is None:
            return 0, dict.fromkeys(range(batch.num_rows))
        outcomes = client.run(
            lambda context: schedule_ready(
                context, plain.batches, refuse_past=self._refuse_past, again=self._options.again
            )
        )
        others: dict[int, Outcome | None] = dict.fromkeys(plain.others)
        return plain.rows - len(outcomes), others | outcomes

    def _send_rows(self, rows: Iterable[Message | InvalidMessage]) -> list[Outcome]:
        """The outcome of each row, in order. Raises GivenUp."""
        given: list[Message | InvalidMessage] = []

        def messages() -> Iterator[Message]:
            for row in rows:
                given.append(row)
                if type(row) is Message:
                    yield row

        answers = self._client.schedule_many(messages(), refuse_past=self._refuse_past)
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
        """Send rows again that Redis did not accept or whose outcome is unknown: with their ids, so only once."""
        patience = Patience(self._clock, self._retry_for)
        while left := [(place, row) for place, row in sent if isinstance(outcomes[place], StoreError)]:
            if len(left) < len(sent):
                patience.progress()
            patience.bear(_worst([outcomes[place] for place, _ in left]))
            sent = left
            rows = (row for _, row in left)
            self._take(outcomes, left, self._client.schedule_many(rows, refuse_past=self._refuse_past))

    def _look_at_conflicts(self, outcomes: list[Any], sent: list[tuple[int, Message]]) -> None:
        """Recognize another run of the same rows, which differs only by its name: its messages exist already."""
        taken = [
            (place, row) for place, row in sent if isinstance(one := outcomes[place], Conflict) and not one.removed
        ]
        if not taken:
            return
        ids = [outcomes[place].id for place, _ in taken]
        patience = Patience(self._clock, self._retry_for)
        for (place, row), found in zip(taken, patience.through(lambda: self._client.get_many(ids)), strict=True):
            # A missing message has just ended, and its content is unknown.
            if found is not None and found.record is not None and same_message(found.record, row):
                outcomes[place] = Scheduled(found.id, found.queue, found.due, created=False)
            elif found is not None and found.state == State.DELIVERED:
                outcomes[place] = Scheduled(found.id, found.queue, None, State.DELIVERED, created=False)


def _worst(errors: list[StoreError]) -> StoreError:
    """An error that does not pass by itself, if there is any."""
    return next((one for one in errors if not isinstance(one, (StoreUnavailable, StoreFull))), errors[0])


def reason_of(error: DelayqError) -> str:
    """Return the kind of an error in one word, for rejected rows and totals."""
    if isinstance(error, Conflict):
        return error.state if error.removed else "conflict"
    if isinstance(error, PastDue):
        return "past"
    if isinstance(error, TooManyPending):
        return "pending"
    if isinstance(error, InvalidMessage):
        return _REASONS.get(error.field, error.field)
    return "error"


_REASONS: Final = {
    "delayTime": "due", "expectDate": "due", "delayLevel": "due", "orderingKey": "ordering_key",
    "maxAttempts": "max_attempts", "expireAfter": "expire_after", "bodyType": "body",
}  # fmt: skip
