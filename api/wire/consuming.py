"""Requests and answers of consumers: receive, acknowledge, extend, hand back."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.wire.requests import Duration
from delayq.client.consuming.leases import MOST_REASON

Group = Annotated[
    str,
    Meta(
        description="The consumer group. Each group receives every message; its consumers share them.",
        examples=["mail"],
        extra_json_schema={"pattern": "^[A-Za-z0-9._-]{1,64}$"},
    ),
]
_LEASE: Final = "The opaque token of the lease, as it was received with the message."


class ReceiveIn(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages to receive, and for how long to lease them."""

    group: Group
    max: Annotated[int, Meta(description="The most messages.", extra_json_schema={"minimum": 1, "maximum": 1_000})] = 10
    wait: Annotated[Duration, Meta(description="How long to wait for a first message: ms, or text; at most 30s.")] = (
        None
    )
    lease: Annotated[
        Duration,
        Meta(
            description="How long the lease lasts, 1s to 12h; default: 30s. No other call gets the message meanwhile."
        ),
    ] = None
    start: Annotated[
        str | None,
        Meta(
            description="Where a new group begins: 'beginning' (the default), 'end', or a time (RFC 3339 with its zone).",
            examples=["beginning"],
        ),
    ] = None
    call: Annotated[
        str | None,
        Meta(
            description="A new name for each call. Repeat the call with it only after its answer was lost. While it holds "
            "messages, it gets the same ones, and their leases do not count again.",
            extra_json_schema={"pattern": "^[A-Za-z0-9_-]{1,64}$"},
        ),
    ] = None
    tags: Annotated[
        list[str] | None,
        Meta(
            description="The filter of the group: only messages with one of these tags are received; at most 100 of them, of 4 KB"
            " together. Default: all."
        ),
    ] = None
    ack: Annotated[
        list[str] | None,
        Meta(description="Leases of messages to acknowledge before, in the same step: a consumer needs one call."),
    ] = None


class LeaseIn(msgspec.Struct, forbid_unknown_fields=True):
    """A message that was received."""

    id: Annotated[str, Meta(description="The id of the message.")]
    lease: Annotated[str, Meta(description=_LEASE)]


class LeasesIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that a consumer of the group received."""

    group: Group
    messages: list[LeaseIn]


class ExtendIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages whose leases are to end later."""

    group: Group
    messages: list[LeaseIn]
    lease: Annotated[
        Duration,
        Meta(
            description="When the leases end from now, 1s to 12h, or 0 to release the messages: ms, or text; default: 30s."
        ),
    ] = None


class HandedBackIn(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A message to hand back, why, and when its group receives it again."""

    id: Annotated[str, Meta(description="The id of the message.")]
    lease: Annotated[str, Meta(description=_LEASE)]
    reason: Annotated[
        str | None,
        Meta(description="Why; a dead letter shows all reasons.", extra_json_schema={"maxLength": MOST_REASON}),
    ] = None
    delay_time: Annotated[
        Duration, Meta(description="When it is received again; default: each time later, 10 s to 2 h.")
    ] = None


class HandBackIn(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that a consumer of the group could not handle."""

    group: Group
    messages: list[HandedBackIn]
