"""The answers about messages, dead letters and counts."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from delayq import Scheduled
from delayq.answers.times import Ms, Time, instant, one_of
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroups
from delayq.client.looking.explain import WAITS_FOR, Explanation
from delayq.codec import BODY_JSON, Record
from delayq.message import STATES, State
from delayq.store.commands import DeadLetter, Found
from delayq.times import format_instant

__all__ = [
    "BucketOut", "CountOut", "DeadGroupOut", "DeadGroupsOut", "DeadLetterOut", "DeadLettersOut", "ExplainOut",
    "ForecastOut", "FoundOut", "MessageOut", "ScheduledOut", "StateOut", "count_out", "dead_groups_out",
    "dead_letter_out", "forecast_out", "found_out", "scheduled_out", "state_out",
]  # fmt: skip


class ScheduledOut(msgspec.Struct, rename="camel", gc=False):
    """The message as it stands: the id to use from now on, its queue, its state, and its due."""

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled; delivered or dead, when that id is so already",
            extra_json_schema=one_of(State.SCHEDULED, State.DELIVERED, State.DEAD),
        ),
    ]
    due_time: Time | None
    due_ms: Ms | None
    window: Annotated[int, Meta(description="ms over which its due was spread")] | UnsetType = UNSET


class MessageOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """The message as it was scheduled, with the due asked for; `bodyBase64` when its body is bytes.

    What it was scheduled without is left out.
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
    """Why a message has not been delivered yet, or how it ended."""

    waits_for: (
        Annotated[
            str,
            Meta(
                description="due, attempt, owner (of its queue), pull, answer (of its target), pause, limit, key (others of its "
                "ordering key), target, route, return (it comes back), redrive; null once it has ended",
                extra_json_schema=one_of(*WAITS_FOR),
            ),
        ]
        | None
    )
    text: Annotated[str, Meta(description="the same as a sentence, with what is in the way")]
    since: Time | None
    until: Annotated[Time | None, Meta(description="when that is over by itself")]
    owner: Annotated[str | None, Meta(description="the live node that delivers from its queue")]


class StateOut(msgspec.Struct, rename="camel"):
    """What is known of an id. `message` is null once it has ended; `reason` says why it is dead, or what parked it."""

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled, due, inFlight, retrying, parked, held or dead; for a while: delivered, cancelled, "
            "removedInFlight (cancelled when it may have been delivered), discarded (as a dead letter)",
            extra_json_schema=one_of(*STATES),
        ),
    ]
    attempts: Annotated[int, Meta(description="failed ones")]
    due_time: Annotated[Time | None, Meta(description="of the next attempt; null while it is parked, held or dead")]
    due_ms: Ms | None
    ended_time: Time | None
    reason: str | None
    next_probe_time: Annotated[Time | None, Meta(description="when the target of a parked one is tried next")]
    message: MessageOut | None
    ended_by: (
        Annotated[str, Meta(description="who cancelled or discarded it, if that was written down")] | UnsetType
    ) = UNSET
    explain: ExplainOut | UnsetType = UNSET


class FoundOut(msgspec.Struct, rename="camel"):
    """Messages that have not ended, by due; dead letters by when they died. `nextPageToken` is null on the last page."""

    messages: list[StateOut]
    looked: Annotated[int, Meta(description="how many messages were looked at for them")]
    complete: Annotated[bool, Meta(description="whether these, with those of the pages before, are all")]
    next_page_token: str | None


class CountOut(msgspec.Struct, rename="camel"):
    """How many messages there are; null if no census was taken yet, or (with `asOf`) if it has no such count."""

    count: int | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="when it was so, if it is not exact")]


class BucketOut(msgspec.Struct, rename="camel"):
    """Messages that fall due from `dueFrom` on, and before the next bucket."""

    due_from: Time
    messages: int


class ForecastOut(msgspec.Struct, rename="camel"):
    """How many messages fall due when; `buckets` is null if no census was taken yet, or (with `asOf`) it has none."""

    buckets: list[BucketOut] | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="when it was so, if it is not exact")]
    drain_rate: Annotated[
        float | None, Meta(description="messages a second that went out in the best 10 s of the last 10 minutes")
    ]
    capacity: Annotated[
        float | None,
        Meta(
            description="the same if messages had to wait for each other meanwhile; null: nobody knows how many can go out"
        ),
    ]


class DeadLetterOut(msgspec.Struct, rename="camel"):
    """A message that was given up."""

    id: str
    queue: int
    dead_time: Time
    attempts: int
    reason: str
    message: MessageOut | None


class DeadLettersOut(msgspec.Struct, rename="camel"):
    """A page. `nextPageToken` is null on the last one."""

    dead_letters: list[DeadLetterOut]
    next_page_token: str | None


class DeadGroupOut(msgspec.Struct, rename="camel"):
    """Dead letters of a topic that died of the same; `examples` are ids of the last of them."""

    topic: Annotated[str | None, Meta(description="null where it cannot be read")]
    reason: Annotated[str, Meta(description="without numbers")]
    count: int
    first_time: Time
    last_time: Time
    examples: list[str]


class DeadGroupsOut(msgspec.Struct, rename="camel"):
    """The largest groups of the `looked` newest dead letters; `complete`: there are no more than these."""

    groups: list[DeadGroupOut]
    looked: int
    complete: bool
    as_of: Time


def scheduled_out(scheduled: Scheduled) -> ScheduledOut:
    """The answer about an accepted message."""
    window = UNSET if scheduled.window is None else scheduled.window
    return ScheduledOut(scheduled.id, scheduled.queue, scheduled.state, instant(scheduled.due), scheduled.due, window)


def state_out(found: Found, explained: Explanation | None = None) -> StateOut:
    """The answer about the state of a message, and why it waits."""
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
    """The answer with a count."""
    return CountOut(counted.messages, counted.exact, instant(counted.as_of))


def forecast_out(found: Forecast) -> ForecastOut:
    """The answer with a forecast."""
    buckets = None
    if found.messages is not None:
        buckets = [BucketOut(format_instant(begin), n) for begin, n in zip(found.edges, found.messages, strict=False)]
    return ForecastOut(buckets, found.exact, instant(found.as_of), found.drain_rate, found.capacity)


def found_out(found: Iterable[Found], looked: int | None = None, next_token: str | None = None) -> FoundOut:
    """The answer with a page of messages; without `looked`, only these messages were read for it."""
    messages = [state_out(one) for one in found]
    return FoundOut(messages, len(messages) if looked is None else looked, next_token is None, next_token)


def dead_letter_out(letter: DeadLetter) -> DeadLetterOut:
    """The answer about a dead letter."""
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
    # JSON as it came: numbers keep all their digits.
    return {"body": Raw(record.payload) if record.flags & BODY_JSON else body}


def dead_groups_out(found: DeadGroups, limit: int) -> DeadGroupsOut:
    """The answer with the largest groups of dead letters."""
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
