"""The answers about messages, dead letters and counts."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from delayq import Scheduled
from delayq.answers.times import Ms, Time, instant, one_of
from delayq.base.times import format_instant
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroups
from delayq.client.looking.explain import WAITS_FOR, Explanation
from delayq.domain.codec import BODY_JSON, Record
from delayq.domain.message import STATES, State
from delayq.store.commands import DeadLetter, Found


class ScheduledOut(msgspec.Struct, rename="camel", gc=False):
    """An accepted message: its final id, its queue, its state, and its due time."""

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled; or delivered or dead, if this id already was.",
            extra_json_schema=one_of(State.SCHEDULED, State.DELIVERED, State.DEAD),
        ),
    ]
    due_time: Time | None
    due_ms: Ms | None
    window: Annotated[int, Meta(description="The ms over which its due time was spread.")] | UnsetType = UNSET


class MessageOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message as it was scheduled, with the asked due time. `bodyBase64` is a body of bytes.

    Fields that were not given are omitted.
    """

    topic: str
    expect_date: Time
    body: Raw | str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None


class ExplainOut(msgspec.Struct, rename="camel"):
    """The reason why a message is not delivered yet, or how it ended."""

    waits_for: (
        Annotated[
            str,
            Meta(
                description="The cause of the wait: its time, its queue's owner, its target, a pause, a limit, or "
                "an earlier message of its ordering key. Null if it has ended.",
                extra_json_schema=one_of(*WAITS_FOR),
            ),
        ]
        | None
    )
    text: Annotated[str, Meta(description="The same as a sentence, with its cause.")]
    since: Time | None
    until: Annotated[Time | None, Meta(description="The time when the wait ends by itself.")]
    owner: Annotated[str | None, Meta(description="The live node that delivers from its queue.")]


class StateOut(msgspec.Struct, rename="camel"):
    """The state of an id. `message` is null once it has ended. `reason` is the cause of its death or of its parking. The
    reason of a delivered message names consumer groups that gave it up, with the ids of their dead letters.
    """

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled, due, inFlight, retrying, parked, held or dead; for a while: delivered, "
            "cancelled, removedInFlight (cancelled, but perhaps delivered), discarded (as a dead "
            "letter).",
            extra_json_schema=one_of(*STATES),
        ),
    ]
    attempts: Annotated[int, Meta(description="failed ones")]
    due_time: Annotated[
        Time | None, Meta(description="The time of the next attempt; null while it is parked, held or dead.")
    ]
    due_ms: Ms | None
    ended_time: Time | None
    reason: str | None
    next_probe_time: Annotated[
        Time | None, Meta(description="The time of the next probe to the target of a parked message.")
    ]
    message: MessageOut | None
    ended_by: (
        Annotated[str, Meta(description="The name of the API key, or of the person, that cancelled or discarded it.")]
        | UnsetType
    ) = UNSET
    explain: ExplainOut | UnsetType = UNSET


class FoundOut(msgspec.Struct, rename="camel"):
    """Messages that have not ended, by due time; dead letters by their death. `nextPageToken` is null on the last page."""

    messages: list[StateOut]
    looked: Annotated[int, Meta(description="The number of messages that were read for this page.")]
    complete: Annotated[bool, Meta(description="Whether this page and the pages before it contain all matches.")]
    next_page_token: str | None


class CountOut(msgspec.Struct, rename="camel"):
    """The number of messages; null if there is no census yet, or (with `asOf`) if the census has no such count."""

    count: int | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="The time of the count, if it is not exact.")]


class BucketOut(msgspec.Struct, rename="camel"):
    """Messages that fall due from `dueFrom` until the next bucket."""

    due_from: Time
    messages: int


class ForecastOut(msgspec.Struct, rename="camel"):
    """Due messages in buckets; null if there is no census yet, or (with `asOf`) if the census has no such count."""

    buckets: list[BucketOut] | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="The time of the count, if it is not exact.")]
    drain_rate: Annotated[
        float | None, Meta(description="Delivered messages per second in the best 10 s of the last 10 minutes.")
    ]
    capacity: Annotated[
        float | None,
        Meta(description="The same if messages waited for each other then; null: the capacity is unknown."),
    ]


class DeadLetterOut(msgspec.Struct, rename="camel"):
    """A dead letter."""

    id: str
    queue: int
    dead_time: Time
    attempts: int
    reason: str
    message: MessageOut | None


class DeadLettersOut(msgspec.Struct, rename="camel"):
    """A page of dead letters. `nextPageToken` is null on the last page."""

    dead_letters: list[DeadLetterOut]
    next_page_token: str | None


class DeadGroupOut(msgspec.Struct, rename="camel"):
    """Dead letters of a topic with the same reason; `examples` are the ids of the newest."""

    topic: Annotated[str | None, Meta(description="null if it cannot be read.")]
    reason: Annotated[str, Meta(description="without numbers")]
    count: int
    first_time: Time
    last_time: Time
    examples: list[str]


class DeadGroupsOut(msgspec.Struct, rename="camel"):
    """The largest groups of the `looked` newest dead letters. `complete`: there are no older ones."""

    groups: list[DeadGroupOut]
    looked: int
    complete: bool
    as_of: Time


def scheduled_out(scheduled: Scheduled) -> ScheduledOut:
    """Return the answer about an accepted message."""
    window = UNSET if scheduled.window is None else scheduled.window
    return ScheduledOut(scheduled.id, scheduled.queue, scheduled.state, instant(scheduled.due), scheduled.due, window)


def state_out(found: Found, explained: Explanation | None = None) -> StateOut:
    """Return the answer about the state of a message, and why it waits."""
    return StateOut(
        found.id,
        found.queue,
        found.state,
        found.attempts,
        instant(found.due),
        found.due,
        instant(found.ended),
        found.reason,
        instant(found.next_probe),
        _message_out(found.record),
        UNSET if found.ended_by is None else found.ended_by,
        UNSET if explained is None else _explain_out(explained),
    )


def _explain_out(one: Explanation) -> ExplainOut:
    return ExplainOut(one.waits_for, one.text, instant(one.since), instant(one.until), one.owner)


def count_out(counted: Counted) -> CountOut:
    """Return the answer with a count."""
    return CountOut(counted.messages, counted.exact, instant(counted.as_of))


def forecast_out(found: Forecast) -> ForecastOut:
    """Return the answer with a forecast."""
    buckets = None
    if found.messages is not None:
        buckets = [BucketOut(format_instant(begin), n) for begin, n in zip(found.edges, found.messages, strict=False)]
    return ForecastOut(buckets, found.exact, instant(found.as_of), found.drain_rate, found.capacity)


def found_out(found: Iterable[Found], looked: int | None = None, next_token: str | None = None) -> FoundOut:
    """Return the answer with a page of messages. Without `looked`, only these messages were read for it."""
    messages = [state_out(one) for one in found]
    return FoundOut(messages, len(messages) if looked is None else looked, next_token is None, next_token)


def dead_letter_out(letter: DeadLetter) -> DeadLetterOut:
    """Return the answer about a dead letter."""
    time = format_instant(letter.buried)
    return DeadLetterOut(letter.id, letter.queue, time, letter.attempts, letter.reason, _message_out(letter.record))


def _message_out(record: Record | None) -> MessageOut | None:
    if record is None:
        return None
    return MessageOut(
        record.topic,
        format_instant(record.asked),
        **_body(record),
        tags=record.tags,
        keys=record.keys,
        properties=record.properties,
        ordering_key=record.ordering_key,
        max_attempts=record.max_attempts,
        expire_after=record.expire_after,
    )


def _body(record: Record) -> dict[str, Any]:
    body = record.body
    if isinstance(body, bytes):
        return {"body_base64": base64.b64encode(body).decode()}
    # JSON without changes, so that numbers keep all their digits.
    return {"body": Raw(record.payload) if record.flags & BODY_JSON else body}


def dead_groups_out(found: DeadGroups, limit: int) -> DeadGroupsOut:
    """Return the answer with the largest groups of dead letters."""
    groups = [
        DeadGroupOut(
            one.topic or None,
            one.reason,
            one.count,
            format_instant(one.first),
            format_instant(one.last),
            list(one.examples),
        )
        for one in found.groups[:limit]
    ]
    return DeadGroupsOut(groups, found.looked, found.complete, format_instant(found.now))
