"""Requests and answers of the hand-back of messages that any target delivered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from api.wire.requests import Duration
from delayq.client.consuming.handing_back import MOST_REPORTED
from delayq.client.consuming.leases import MOST_REASON


class DeliveredIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A message as a target delivered it, the reason of the hand-back, and when it is delivered again."""

    id: Annotated[str, Meta(description="The id with which it was delivered.", examples=["unpaid-42"])]
    topic: Annotated[str, Meta(description="The topic.", examples=["orders.unpaid"])]
    hand_backs: Annotated[
        int,
        Meta(
            description="How often it was handed back before: its property `delayq-hand-backs`, or 0.",
            extra_json_schema={"minimum": 0, "maximum": MOST_REPORTED - 1},
        ),
    ]
    body: Annotated[Raw, Meta(description="A string, or any JSON value.", examples=["order 42"])] | UnsetType = UNSET
    body_base64: Annotated[str | None, Meta(description="The body as bytes, instead of body.")] = None
    content_type: Annotated[
        str | None,
        Meta(description="Its content type. With `application/json`, a body that is a string is the text of JSON."),
    ] = None
    tags: str | None = None
    keys: Annotated[tuple[str, ...] | None, Meta(extra_json_schema={"maxItems": 16})] = None
    properties: Annotated[
        dict[str, str] | None,
        Meta(description="All of its properties, also those that begin with `delayq-`."),
    ] = None
    ordering_key: str | None = None
    reason: Annotated[
        str | None,
        Meta(description="Why; a dead letter shows all reasons.", extra_json_schema={"maxLength": MOST_REASON}),
    ] = None
    delay_time: Annotated[
        Duration,
        Meta(description="When it is delivered again; default: the `backoff` of the policy, else 10 s to 2 h."),
    ] = None


class DeliveredManyIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to hand back; each of them is accepted or refused separately."""

    messages: list[DeliveredIn]
