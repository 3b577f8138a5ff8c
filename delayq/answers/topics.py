"""The answers about topics, pauses and policies."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.times import Time, known, ms, one_of
from delayq.base.times import format_instant, parse_instant
from delayq.client.changing.policies import Paused, PolicyChanged, Resumed
from delayq.client.looking.topics import Arriving, TopicState
from delayq.domain.message import check_topic
from delayq.domain.policies import Bucket, Limit, Pause, Policies, Policy


class PauseOut(msgspec.Struct, omit_defaults=True):
    """A pause in force."""

    match: str
    since: Time
    until: Time | UnsetType = UNSET
    reason: str = ""

    def domain(self) -> Pause:
        return Pause(match=self.match, since=parse_instant(self.since), until=ms(self.until), reason=self.reason)


class PausedOut(msgspec.Struct, rename="camel"):
    """A pause: nothing of its topics is pulled, and at most `inFlight` messages may still arrive."""

    match: str
    state: Annotated[
        str,
        Meta(
            description="paused: no message may arrive any longer; otherwise pausing.",
            extra_json_schema=one_of("pausing", "paused"),
        ),
    ]
    version: Annotated[int, Meta(description="The version of the policies.")]
    since: Time
    in_flight: Annotated[int | None, Meta(description="null until every node has reported.")]
    changed: Annotated[bool, Meta(description="Whether this call made it.")]

    def domain(self) -> Paused:
        return Paused(
            match=self.match,
            stored=_stored(self.version),
            since=parse_instant(self.since),
            changed=self.changed,
            in_flight=self.in_flight,
        )


class ResumedOut(msgspec.Struct):
    """The topics that are no longer paused."""

    match: str
    version: Annotated[int, Meta(description="The version of the policies.")]
    changed: Annotated[bool, Meta(description="Whether this call ended it.")]
    held: Annotated[int, Meta(description="Messages that were held, at most: a few may have been cancelled.")]


class PolicyOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """A policy with its values; durations are ms."""

    name: str
    match: str
    since: Annotated[Time, Meta(description="The time when it was last put.")]
    order: int
    per: str = "topic"
    rate: float | None = None
    burst: int | None = None
    max_in_flight: int | None = None
    window: int | None = None
    max_attempts: int | None = None
    backoff: tuple[int, ...] = ()
    max_hand_backs: int | None = None
    max_deliveries: int | None = None
    expire_after: int | None = None
    pending: int | None = None
    index: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    min_replicas: int | None = None
    fsync: str | None = None
    retention_age: int | None = None
    retention_length: int | None = None
    retention_force: bool = False

    def domain(self) -> Policy:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return Policy(**fields | {"since": parse_instant(self.since)})


class PolicyChangedOut(msgspec.Struct):
    """The current version of the policies, for If-Match, and whether this call made it."""

    name: str
    version: int
    changed: bool


class TemporaryOut(msgspec.Struct):
    """The limit of a resume with a rate: messages per second, until nothing is held, or a resume without a rate."""

    match: str
    rate: float
    since: Time


class PoliciesOut(msgspec.Struct):
    """The policies, the pauses and the limits of resumes, and their version, for If-Match."""

    version: int
    policies: list[PolicyOut]
    pauses: list[PauseOut]
    limits: Annotated[list[TemporaryOut], Meta(description="Limits of resumes; each ends when nothing of it is held.")]

    def domain(self) -> Policies:
        """Return all of them."""
        return Policies(
            _stored(self.version),
            {one.match: one.domain() for one in self.pauses},
            {one.name: one.domain() for one in self.policies},
            {one.match: Limit(match=one.match, rate=one.rate, since=parse_instant(one.since)) for one in self.limits},
        )


def _stored(version: int) -> str:
    """Return a version as the store writes it."""
    return f"{version:010}"


class ArrivingOut(msgspec.Struct, rename="camel"):
    """A node whose messages of a paused topic may still arrive."""

    node: str
    in_flight: Annotated[int | None, Meta(description="null: it has not reported.")]

    def domain(self) -> Arriving:
        return Arriving(self.node, self.in_flight)


class LimitOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """The maximum messages per second, the waiting messages, and their shortest possible wait at this rate."""

    rate: float
    held: int
    wait_ms: int
    match: Annotated[str, Meta(description="The pattern of the policy or of the resume.")]
    temporary: Annotated[bool, Meta(description="Whether a resume set it, until nothing is held.")] = False
    granted_last_second: Annotated[
        int | UnsetType,
        Meta(
            description="Permits that workers got in the last full second. They ask in advance, so bursts may "
            "show more than the rate."
        ),
    ] = UNSET


class TopicOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """A topic, and its settings."""

    topic: str
    route: Annotated[
        str | None, Meta(description="The route that matches it, by the table of this process; null if none does.")
    ]
    held: Annotated[int, Meta(description="Messages that a pause or a limit holds, at most.")]
    counts: Annotated[dict[str, int] | UnsetType, Meta(description="Its messages by state, as of asOf.")] = UNSET
    as_of: Time | UnsetType = UNSET
    pause: PauseOut | UnsetType = UNSET
    policy: PolicyOut | UnsetType = UNSET
    limit: LimitOut | UnsetType = UNSET
    arriving: Annotated[
        list[ArrivingOut], Meta(description="The nodes whose messages of a paused topic may still arrive.")
    ] = []

    def domain(self) -> TopicState:
        limit = known(self.limit)
        return TopicState(
            topic=self.topic,
            route=self.route,
            pause=self.pause.domain() if self.pause else None,
            policy=self.policy.domain() if self.policy else None,
            bucket=None if limit is None else Bucket(limit.match, limit.rate, 0),
            held=self.held,
            counts=known(self.counts),
            as_of=ms(self.as_of),
            limit=Limit(match=limit.match, rate=limit.rate) if limit is not None and limit.temporary else None,
            granted_last_second=None if limit is None else known(limit.granted_last_second),
            arriving=tuple(one.domain() for one in self.arriving),
        )


class TopicsOut(msgspec.Struct, rename="camel"):
    """A page of topics by name. `nextPageToken` is null on the last page."""

    topics: list[TopicOut]
    next_page_token: str | None
    total: Annotated[int, Meta(description="The number of matching topics on all pages.")]
    arriving: Annotated[
        list[ArrivingOut] | UnsetType,
        Meta(description="If the pattern itself is paused, the nodes whose messages may still arrive."),
    ] = UNSET

    def domain(self) -> tuple[list[TopicState], str | None]:
        return [one.domain() for one in self.topics], self.next_page_token


def pause_out(one: Pause) -> PauseOut:
    """Return the answer about a pause."""
    until = UNSET if one.until is None else format_instant(one.until)
    return PauseOut(one.match, format_instant(one.since), until, one.reason)


def paused_out(one: Paused) -> PausedOut:
    """Return the answer about a pause that was just made."""
    return PausedOut(one.match, one.state, one.version, format_instant(one.since), one.in_flight, one.changed)


def resumed_out(one: Resumed) -> ResumedOut:
    """Return the answer about a resume."""
    return ResumedOut(one.match, one.version, one.changed, one.held)


def policy_out(one: Policy) -> PolicyOut:
    """Return the answer about a policy."""
    told = {name: getattr(one, name) for name in PolicyOut.__struct_fields__ if name != "since"}
    return PolicyOut(since=format_instant(one.since), **told)


def policies_out(all: Policies, wanted: Callable[[str], bool] = lambda _: True) -> PoliciesOut:
    """Return the answer with the policies, pauses and limits whose patterns match."""
    limits = [one for match, one in sorted(all.limits.items()) if wanted(match)]
    return PoliciesOut(
        all.number,
        [policy_out(one) for one in all.in_order if wanted(one.match)],
        [pause_out(one) for one in all.by_age if wanted(one.match)],
        [TemporaryOut(one.match, one.rate, format_instant(one.since)) for one in limits],
    )


def policy_changed_out(one: PolicyChanged) -> PolicyChangedOut:
    """Return the answer about a change of a policy."""
    return PolicyChangedOut(one.name, one.version, one.changed)


def _limit_out(one: TopicState) -> LimitOut | UnsetType:
    if one.bucket is None:
        return UNSET
    wait = math.ceil(one.held / one.bucket.rate * 1_000)
    said = one.limit or one.policy
    return LimitOut(
        one.bucket.rate,
        one.held,
        wait,
        "" if said is None else said.match,
        one.limit is not None,
        UNSET if one.granted_last_second is None else one.granted_last_second,
    )


def topic_out(one: TopicState) -> TopicOut:
    """Return the answer about a topic."""
    return TopicOut(
        one.topic,
        one.route,
        one.held,
        UNSET if one.counts is None else one.counts,
        UNSET if one.as_of is None else format_instant(one.as_of),
        UNSET if one.pause is None else pause_out(one.pause),
        UNSET if one.policy is None else policy_out(one.policy),
        _limit_out(one),
        _arriving_out(one.arriving),
    )


def _arriving_out(arriving: Iterable[Arriving]) -> list[ArrivingOut]:
    return [ArrivingOut(here.node, here.in_flight) for here in arriving]


def topics_out(
    found: Sequence[TopicState], limit: int, token: str | None = None, arriving: Iterable[Arriving] | None = None
) -> TopicsOut:
    """Return the answer with at most `limit` topics, sorted by name, after the topic `token`. Raises InvalidMessage.

    `arriving` are the nodes that may still deliver messages, or None if the pattern itself is not paused.
    """
    begin = 0 if token is None else bisect_right(found, check_topic(token, "pageToken"), key=lambda one: one.topic)
    page = found[begin : begin + limit]
    last = page[-1].topic if len(found) > begin + len(page) else None
    coming = UNSET if arriving is None else _arriving_out(arriving)
    return TopicsOut([topic_out(one) for one in page], last, len(found), coming)
