"""The answers about messages that a consumer received."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.times import Ms, Time
from delayq.base.json_text import text_or_base64
from delayq.base.times import format_instant
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.leases import with_id


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
    keys: list[str] | UnsetType = UNSET
    ordering_key: str | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET


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
        list(one.keys) or UNSET,
        one.ordering_key or UNSET,
        one.properties or UNSET,
    )
