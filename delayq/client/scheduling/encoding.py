"""Messages checked and encoded once, whichever queue they go to later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from delayq.client.known_routes import KnownRoutes
from delayq.codec import due_head, encode
from delayq.errors import InvalidMessage
from delayq.message import Limits, Message, level_delay
from delayq.store.keys import Layout, ids_ending, new_id, spread

__all__ = ["AGAIN", "Encoded", "asked_due", "encode_all", "whole_id"]

#: The kinds of messages that are scheduled again though they were cancelled for certain.
AGAIN: Final = {"a": "B", "p": "Q", "r": "S"}


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A message, checked and encoded (behind `due_head`): what a script takes of it, whichever queue it goes to.

    `id` is whole; it is None where the message brings neither id nor ordering key, so that any queue will do. With a `window` it
    is spread already, by what is then its `own` of the id: only the suffix, which chooses the queue, is put behind that later.
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
    """Each message checked and encoded, or what is wrong with it; `now` (Unix ms) bounds dates.

    Without `routes` nothing is said of its topic and its target.
    """
    at = "p" if refuse_past else "a"
    made = ids_ending("")  # so that the due stands before the body from the first, and neither is made twice
    for place, message in enumerate(messages):
        try:
            if not isinstance(message, Message):
                raise InvalidMessage(
                    "message", f"item {place} has the type {type(message).__name__}; it has to be a Message"
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
                kind, id = (AGAIN[kind] if message.again else kind.upper()), whole_id(id, message.ordering_key)
            elif message.ordering_key:
                id = whole_id(None, message.ordering_key)
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


def whole_id(id: str | None, ordering_key: str) -> str:
    """The id as it is kept: one is made if there is none, and an ordering key puts its hash behind it."""
    whole = id if id is not None else new_id()
    if ordering_key:
        whole = Layout.keyed_id(whole, ordering_key)
        if len(whole) > 128:
            raise InvalidMessage("id", "at most 123 characters beside an orderingKey, whose hash is put behind it")
    return whole


def asked_due(message: Message) -> int | None:
    """The due (Unix ms) that a message with an id asks for; None if that is relative."""
    if message.expect_date is None or message.window is None:
        return message.expect_date
    assert message.id is not None
    return message.expect_date + spread(message.id, message.window)
