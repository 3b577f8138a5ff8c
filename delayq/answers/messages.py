"""The answers about messages, dead letters and counts."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from delayq.answers.times import Ms, Time, given, instant, known, ms, one_of
from delayq.base.times import format_instant, parse_instant
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroup, DeadGroups
from delayq.client.looking.dead_letters import DeadLetterPage
from delayq.client.looking.explain import WAITS_FOR, Explanation
from delayq.client.looking.search import SearchPage
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.codec import BODY_JSON, Record
from delayq.domain.message import STATES, Message, State
from delayq.store.commands import Found


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

    def domain(self, id: str = "", *, created: bool = True) -> Scheduled:
        """Return the message, whose id was given. Raises ValueError if the answer is about another message."""
        _check_id(self.id, id)
        return Scheduled(self.id, self.queue, self.due_ms, self.state, created, known(self.window))


class MessageOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message as it was scheduled, with the asked due time. `bodyBase64` is a body of bytes.

    Fields that were not given are omitted.
    """

    topic: str
    expect_date: Time
    body: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None

    def message(self, id: str) -> Message:
        """Return the message; numbers of its body are read as Python does."""
        encoded = self.body_base64
        body: Any = base64.b64decode(encoded) if encoded is not UNSET else msgspec.json.decode(given(self.body))
        return Message(
            topic=self.topic,
            body=body,
            expect_date=parse_instant(self.expect_date),
            tags=self.tags,
            keys=self.keys,
            properties=self.properties,
            id=id,
            ordering_key=self.ordering_key,
            max_attempts=self.max_attempts,
            expire_after=self.expire_after,
        )


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

    def domain(self) -> Explanation:
        since, until = ms(self.since), ms(self.until)
        return Explanation(waits_for=self.waits_for, text=self.text, since=since, until=until, owner=self.owner)


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

    def domain(self, id: str = "") -> Found:
        """Return the state of an id. Raises ValueError if the answer is about another message."""
        _check_id(self.id, id)
        return Found(
            id=self.id,
            queue=self.queue,
            state=self.state,
            answer=self.message,
            due=self.due_ms,
            attempts=self.attempts,
            reason=self.reason,
            ended=ms(self.ended_time),
            ended_by=known(self.ended_by),
            next_probe=ms(self.next_probe_time),
        )


class FoundOut(msgspec.Struct, rename="camel"):
    """Messages that have not ended, by due time; dead letters by their death. `nextPageToken` is null on the last page."""

    messages: list[StateOut]
    looked: Annotated[int, Meta(description="The number of messages that were read for this page.")]
    complete: Annotated[bool, Meta(description="Whether this page and the pages before it contain all matches.")]
    next_page_token: str | None

    def domain(self) -> SearchPage:
        return SearchPage([one.domain() for one in self.messages], self.looked, self.next_page_token)


class CountOut(msgspec.Struct, rename="camel"):
    """The number of messages; null if there is no census yet, or (with `asOf`) if the census has no such count."""

    count: int | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="The time of the count, if it is not exact.")]

    def domain(self) -> Counted:
        return Counted(self.count, self.exact, ms(self.as_of))


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

    def domain(self, edges: list[int]) -> Forecast:
        """Return the numbers between these edges."""
        messages = None if self.buckets is None else [one.messages for one in self.buckets]
        return Forecast(edges, messages, self.exact, ms(self.as_of), self.drain_rate, self.capacity)


class DeadLetterOut(msgspec.Struct, rename="camel"):
    """A dead letter."""

    id: str
    queue: int
    dead_time: Time
    attempts: int
    reason: str
    message: MessageOut | None

    def domain(self) -> Found:
        return Found(
            id=self.id,
            queue=self.queue,
            state=State.DEAD,
            answer=self.message,
            attempts=self.attempts,
            reason=self.reason,
            ended=parse_instant(self.dead_time),
        )


class DeadLettersOut(msgspec.Struct, rename="camel"):
    """A page of dead letters. `nextPageToken` is null on the last page."""

    dead_letters: list[DeadLetterOut]
    next_page_token: str | None

    def domain(self) -> DeadLetterPage:
        return DeadLetterPage([one.domain() for one in self.dead_letters], self.next_page_token)


class DeadGroupOut(msgspec.Struct, rename="camel"):
    """Dead letters of a topic with the same reason; `examples` are the ids of the newest."""

    topic: Annotated[str | None, Meta(description="null if it cannot be read.")]
    reason: Annotated[str, Meta(description="without numbers")]
    count: int
    first_time: Time
    last_time: Time
    examples: list[str]

    def domain(self) -> DeadGroup:
        return DeadGroup(
            topic=self.topic or "",
            reason=self.reason,
            count=self.count,
            first=parse_instant(self.first_time),
            last=parse_instant(self.last_time),
            examples=tuple(self.examples),
        )


class DeadGroupsOut(msgspec.Struct, rename="camel"):
    """The largest groups of the `looked` newest dead letters. `complete`: there are no older ones."""

    groups: list[DeadGroupOut]
    looked: int
    complete: bool
    as_of: Time

    def domain(self) -> DeadGroups:
        groups = [one.domain() for one in self.groups]
        return DeadGroups(now=parse_instant(self.as_of), looked=self.looked, complete=self.complete, groups=groups)


def _check_id(found: str, id: str) -> None:
    if not found.startswith(id):  # an ordering key appends to the id
        raise ValueError("the answer is about another message")


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
        _message_out(found),
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


def dead_letter_out(letter: Found) -> DeadLetterOut:
    """Return the answer about a dead letter."""
    time = format_instant(letter.ended or 0)
    return DeadLetterOut(letter.id, letter.queue, time, letter.attempts, letter.reason or "", _message_out(letter))


def _message_out(found: Found) -> MessageOut | None:
    record = found.record
    if record is None:
        shown: MessageOut | None = found.answer
        return shown
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
    return {"body": Raw(record.payload if record.flags & BODY_JSON else msgspec.json.encode(body))}


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
