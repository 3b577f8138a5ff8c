"""Checks and encodes messages, once for whichever queue they go to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.known_routes import KnownRoutes
from delayq.domain.codec import due_head, encode
from delayq.domain.message import Limits, Message, level_delay
from delayq.store.keys import Layout, ids_ending, new_id, spread

#: The kinds of messages that are scheduled although their id was cancelled before delivery.
AGAIN: Final = {"a": "B", "p": "Q", "r": "S"}


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A message that is checked and encoded (behind `due_head`) as a script takes it, for any queue.

    `id` is complete; it is None if the message has neither id nor ordering key, so that any queue fits. With a `window`, the
    due time is spread already by the part `own` of the id. Only the suffix, which chooses the queue, is added later.
    """

    kind: str
    id: str | None
    body: bytes
    when: int  # ms
    window: int | None = None
    own: str | None = None


def encode_all(
    messages: Iterable[Message], limits: Limits, routes: KnownRoutes | None, now: int, *, refuse_past: bool = False
) -> Iterator[Encoded | InvalidMessage]:
    """Check and encode each message, or yield its error; `now` (Unix ms) bounds dates.

    Without `routes`, topics and targets are not checked.
    """
    at = "p" if refuse_past else "a"
    made = ids_ending("")  # the due time is put before the body at once, so that no body is copied
    for place, message in enumerate(messages):
        try:
            if not isinstance(message, Message):
                raise InvalidMessage(
                    "message", f"item {place} has the type {type(message).__name__}; it must be a Message"
                )
            message.validate(limits, now)
            if routes is not None:
                routes.check(message)
            id = message.id
            kind = at
            when = message.expect_date
            if when is None:
                kind = "r"
                when = message.delay_time
                if when is None:
                    when = level_delay(limits.delay_levels, message.delay_level)
            if id is not None:
                kind, id = (AGAIN[kind] if message.again else kind.upper()), complete_id(id, message.ordering_key)
            elif message.ordering_key:
                id = complete_id(None, message.ordering_key)
            window = message.window
            if window is None:
                yield Encoded(kind, id, encode(message, limits, due_head(when)), when)
            elif id is None:
                own = next(made)
                when += spread(own, window)
                yield Encoded(kind, None, encode(message, limits, due_head(when)), when, window, own)
            else:
                when += spread(id, window)
                yield Encoded(kind, id, encode(message, limits, due_head(when)), when, window)
        except InvalidMessage as error:
            yield error


def complete_id(id: str | None, ordering_key: str) -> str:
    """The complete id: a new one if none is given, with the hash of the ordering key as its suffix."""
    whole = id if id is not None else new_id()
    if ordering_key:
        whole = Layout.keyed_id(whole, ordering_key)
        if len(whole) > 128:
            raise InvalidMessage("id", "has at most 123 characters beside an orderingKey, because its hash is appended")
    return whole


def asked_due(message: Message) -> int | None:
    """The due time (Unix ms) that a message with an id asks for; None if it is relative."""
    if message.expect_date is None or message.window is None:
        return message.expect_date
    assert message.id is not None
    return message.expect_date + spread(message.id, message.window)
