"""The answers to consumers: receive, acknowledge, extend, hand back."""

from __future__ import annotations

import base64
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.problems import ProblemOut
from delayq.answers.times import Ms, Time, given, known, ms, one_of
from delayq.base.errors import DelayqError
from delayq.base.json_text import text_or_base64
from delayq.base.times import format_instant
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.handing_back import HandedBack, settlement_of
from delayq.client.consuming.leases import with_id
from delayq.client.consuming.settling import Settlement
from delayq.domain.message import STATES


class ReceivedMessageOut(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A message with its lease. `body` is text; `bodyBase64` is there instead if the body is not UTF-8."""

    id: str
    topic: str
    lease: Annotated[str, Meta(description="The opaque token of the lease, for `:ack`, `:extend` and `:handBack`.")]
    due_time: Time
    due_ms: Ms
    attempt: Annotated[int, Meta(description="Attempts to deliver it to the stream; 1 for the first.")]
    deliveries: Annotated[int, Meta(description="How often this group has received it; 1 for the first.")]
    hand_backs: Annotated[int, Meta(description="How often consumers of this group have handed it back.")]
    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    tags: str | UnsetType = UNSET
    keys: tuple[str, ...] | UnsetType = UNSET
    ordering_key: str | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET

    def domain(self, group: str) -> Leased:
        """Return the message that a consumer of the group received."""
        return Leased(
            id=self.id,
            topic=self.topic,
            group=group,
            lease=self.lease,
            tags=self.tags or "",
            keys=self.keys or (),
            ordering_key=self.ordering_key or "",
            properties=self.properties or {},
            body=base64.b64decode(self.body_base64) if self.body_base64 else (self.body or "").encode(),
            due=self.due_ms,
            attempt=self.attempt,
            deliveries=self.deliveries,
            hand_backs=self.hand_backs,
        )


class ReceivedOut(msgspec.Struct, omit_defaults=True):
    """The received messages; none if nothing arrived in time."""

    messages: list[ReceivedMessageOut]
    lost: (
        Annotated[list[str], Meta(description="Leases of `ack` that are lost: the group may receive these again.")]
        | UnsetType
    ) = UNSET

    def domain(self, group: str) -> tuple[list[Leased], list[str]]:
        """Return the messages that a consumer of the group received, and the leases that were lost."""
        return [one.domain(group) for one in self.messages], self.lost or []


class LeaseOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """The result of one message: 200 acknowledged, extended, released, handedBack or dead.

    409 lost: another consumer may have it. 404 notFound: the topic has no such group.
    """

    id: str
    status: int
    result: str | UnsetType = UNSET
    until: Annotated[str, Meta(description="When the lease or the pause ends.")] | UnsetType = UNSET
    problem: ProblemOut | UnsetType = UNSET

    def domain(self) -> Settlement | DelayqError:
        """Return the result, or the error where the API could not settle the lease."""
        return self.problem.error(id=self.id) if self.problem else Settlement(given(self.result), ms(self.until))


class LeasesOut(msgspec.Struct):
    """A result for each message, in order."""

    results: list[LeaseOut]


class HandedBackOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """The result of one message: 201 handed back, 200 handed back before or dead, or a problem.

    `id` is that of the message that is delivered next.
    """

    status: int
    id: str | UnsetType = UNSET
    state: Annotated[str, Meta(extra_json_schema=one_of(*STATES))] | UnsetType = UNSET
    hand_backs: Annotated[int, Meta(description="With this one.")] | UnsetType = UNSET
    due_time: Time | UnsetType | None = UNSET
    due_ms: Ms | UnsetType | None = UNSET
    problem: ProblemOut | UnsetType = UNSET

    def domain(self) -> Settlement | None:
        """Return the result, or None for a problem."""
        if self.problem:
            return None
        id, state, hand_backs = given(self.id), given(self.state), given(self.hand_backs)
        return settlement_of(HandedBack(id=id, state=state, hand_backs=hand_backs, due=known(self.due_ms)))


class HandedBackManyOut(msgspec.Struct):
    """A result for each message, in order."""

    results: list[HandedBackOut]


def received_out(one: Leased) -> ReceivedMessageOut:
    """Return the message as an answer shows it."""
    body, encoded = text_or_base64(one.body)
    return ReceivedMessageOut(
        one.id,
        one.topic,
        with_id(one.lease, one.id),
        format_instant(one.due),
        one.due,
        one.attempt,
        one.deliveries,
        one.hand_backs,
        body,
        encoded,
        one.tags or UNSET,
        one.keys or UNSET,
        one.ordering_key or UNSET,
        one.properties or UNSET,
    )
