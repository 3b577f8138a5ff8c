"""A plan that makes dead letters of messages that consumers gave up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.known_policies import reserved_keys
from delayq.client.plan import Context, Plan, by_id
from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode, property_bytes
from delayq.domain.message import GROUP_PROPERTY, Message
from delayq.store import commands
from delayq.store.keys import QueueKeys, dead_id

if TYPE_CHECKING:
    from delayq.client.consuming.receiving import Leased


class Letter(msgspec.Struct, frozen=True):
    """A message that becomes a dead letter: how often it was received or handed back, and why it is given up.

    It has its complete id, and an `expect_date`. A dead letter of its id and topic that has the same property `mark` is this
    message, given up before.
    """

    message: Message
    count: int
    reason: str
    mark: str


def letter_of(received: Leased, reason: str, reserved: tuple[str, ...] = ()) -> Letter:
    """A message that a group gave up, with the reasons, a line each. `reserved` are keys by which delayq counts it."""
    is_redriven = received.properties.get(GROUP_PROPERTY) == received.group
    message = Message(
        id=received.id if is_redriven else dead_id(received.id, received.group),
        topic=received.topic,
        body=text_or_bytes(received.body),
        tags=received.tags,
        keys=received.keys,
        ordering_key=received.ordering_key,
        properties={**received.properties, GROUP_PROPERTY: received.group},
        expect_date=received.due,
        reserved=reserved,
    )
    return Letter(message, received.deliveries, reason.replace("\n", "; "), GROUP_PROPERTY)


def give_up(context: Context, letters: Sequence[Letter]) -> Plan[list[Any]]:
    """Make each message a dead letter, and return the result of each, or its error.

    The result is 'dead' (now, or it is one already), 'waiting' (it was redriven before), or 'taken' (another message has its
    id).
    """
    results: dict[str, Any] = {}
    contents: dict[str, tuple[bytes, int, str, bytes]] = {}
    for letter in letters:
        message = letter.message
        policy = context.policies.policy(message.topic)  # its bound and its index count dead letters, too
        reserved = *message.reserved, *reserved_keys(policy, message.topic, message.tags)
        message = msgspec.structs.replace(message, reserved=reserved)
        assert message.id is not None
        assert message.expect_date is not None
        body = message.body  # it was delivered, so a limit that is lower now, or somebody else's, does not keep it here
        size = len(body.encode() if isinstance(body, str) else body) if isinstance(body, (str, bytes)) else 0
        limits = msgspec.structs.replace(context.limits, body=max(size, context.limits.body))
        try:
            content = encode(message, limits, due_head(message.expect_date))[DUE_HEAD_LENGTH:]
        except InvalidMessage as error:
            results[message.id] = error
        else:
            mark = property_bytes(letter.mark, message.properties[letter.mark])
            contents[message.id] = content, letter.count, letter.reason, mark

    def ask(keys: QueueKeys, ids: list[str]) -> Any:
        return commands.give_up(keys, [(id, *contents[id]) for id in ids])

    results |= yield from by_id(context, list(contents), ask, lambda result: result == "moved")
    return [results[letter.message.id or ""] for letter in letters]


def text_or_bytes(body: bytes) -> str | bytes:
    """The body as text if it is UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
