"""A plan that makes dead letters of messages that the consumers of a group gave up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from delayq.client.plan import Context, Plan, by_id
from delayq.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.errors import InvalidMessage
from delayq.message import Message
from delayq.store import commands
from delayq.store.keys import Layout, QueueKeys

if TYPE_CHECKING:
    from delayq.client.consuming.receiving import Received

__all__ = ["GROUP_PROPERTY", "dead_id", "give_up"]

#: The property that names the only group which receives a message after its dead letter was redriven.
GROUP_PROPERTY: Final = "delayq-group"
_LONGEST_ID: Final = 128


def dead_id(id: str, group: str) -> str:
    """The id of the dead letter that a group makes of a message: other groups may give up the same message."""
    suffix = id[-5:] if Layout.has_suffix(id) else ""
    own = id.removesuffix(suffix) if suffix else id
    marked = f"{own}:{group}{suffix}"
    if re.search(rf":{re.escape(group)}$", own):
        return id  # it was redriven before
    return marked if len(marked) <= _LONGEST_ID else f"{blake2b(marked.encode(), digest_size=24).hexdigest()}{suffix}"


def give_up(context: Context, messages: Sequence[tuple[Received, str]]) -> Plan[list[bool]]:
    """Make each message a dead letter with its reason, and return whether it is one now.

    A message that cannot be stored stays with its group.
    """
    contents: dict[str, tuple[bytes, int, str]] = {}
    for received, reason in messages:
        message = Message(
            topic=received.topic,
            body=_text_or_bytes(received.body),
            tags=received.tags,
            keys=received.keys,
            properties={**received.properties, GROUP_PROPERTY: received.group},
            expect_date=received.due,
        )
        try:
            content = encode(message, context.limits, due_head(received.due))[DUE_HEAD_LENGTH:]
        except InvalidMessage:
            continue
        contents[dead_id(received.id, received.group)] = content, received.deliveries, reason.replace("\n", "; ")

    def ask(keys: QueueKeys, ids: list[str]) -> Any:
        return commands.give_up(keys, [(id, *contents[id]) for id in ids])

    results = yield from by_id(context, list(contents), ask, lambda result: result == "moved")
    return [results.get(dead_id(received.id, received.group)) == "dead" for received, _ in messages]


def _text_or_bytes(body: bytes) -> str | bytes:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
