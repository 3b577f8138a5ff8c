"""Tokens of pages: where the next one begins, with a hash by which one is known that was changed or is of another question."""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from delayq.errors import InvalidMessage

__all__ = ["read_token", "token_of"]

_DIGEST: Final = 9
T = TypeVar("T")


def token_of(place: object, asked: msgspec.Struct) -> str:
    """Where the next page begins of what was asked for."""
    raw = msgspec.msgpack.encode(place)
    return base64.urlsafe_b64encode(_digest(raw, asked) + raw).decode().rstrip("=")


def _digest(place: bytes, asked: msgspec.Struct) -> bytes:
    return blake2b(place + msgspec.json.encode(asked), digest_size=_DIGEST).digest()


def read_token(token: str, asked: msgspec.Struct, kind: type[T]) -> T:
    """The place that a token stands for; raises InvalidMessage unless it is of the same."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        place = msgspec.msgpack.decode(raw[_DIGEST:], type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidMessage("pageToken", "is not a token that this API gave out; start without one") from None
    if token_of(place, asked) != token:
        raise InvalidMessage("pageToken", "is not a token of this search: ask for the same, or start without one")
    return place
