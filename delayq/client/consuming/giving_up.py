"""Plans that make dead letters of messages that consumers gave up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.base.errors import Conflict, InvalidMessage, StoreError
from delayq.client.consuming.entries import Leased
from delayq.client.known_policies import reserved_keys
from delayq.client.plan import Context, Plan, by_id
from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode, property_bytes
from delayq.domain.message import GROUP_PROPERTY, Message
from delayq.store import commands
from delayq.store.commands import Act, Lease
from delayq.store.keys import QueueKeys, dead_id


class Letter(msgspec.Struct, frozen=True):
    """A message that becomes a dead letter: how often it was received or handed back, and why it is given up.

    It has its complete id, and an `expect_date`. A dead letter of its id and topic that has the same property `mark` is this
    message, given up before.
    """

    message: Message
    count: int
    reason: str
    mark: str


class GivenUp(msgspec.Struct, frozen=True):
    """A leased message of a stream that its group gives up, and the reasons, a line each."""

    stream: str
    lease: Lease
    message: Leased
    reasons: str


def _letter_of(received: Leased, reason: str, reserved: tuple[str, ...] = ()) -> Letter:
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


def bury(context: Context, given: Sequence[GivenUp], reserved: tuple[str, ...]) -> Plan[list[Any]]:
    """Make leased messages dead letters, then acknowledge them. The result of each is 'dead', or its error.

    The error is a Conflict if another message has the id of the dead letter. `reserved` are keys by which delayq counts it.
    """
    letters = [_letter_of(one.message, one.reasons, reserved) for one in given]
    results = yield from give_up(context, letters)
    done = [at for at, result in enumerate(results) if result in ("dead", "waiting")]
    acknowledged = yield [
        commands.settle_received(
            context.keys.consumers(one.stream, one.message.group), one.message.group, [Act("ack", one.lease)]
        )
        for one in (given[at] for at in done)
    ]
    for at, answer in zip(done, acknowledged, strict=True):
        results[at] = answer if isinstance(answer, StoreError) else "dead"
    taken = [Conflict(letter.message.id or "") for letter in letters]
    return [taken[at] if result == "taken" else result for at, result in enumerate(results)]


def text_or_bytes(body: bytes) -> str | bytes:
    """The body as text if it is UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
