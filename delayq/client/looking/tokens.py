"""Tokens of pages: the place where the next page begins, with a hash that detects changed tokens and other queries."""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from delayq.base.errors import InvalidMessage

_DIGEST: Final = 9
T = TypeVar("T")


def token_of(place: object, asked: msgspec.Struct) -> str:
    """Return the token of the place where the next page of a query begins."""
    raw = msgspec.msgpack.encode(place)
    return base64.urlsafe_b64encode(_digest(raw, asked) + raw).decode().rstrip("=")


def _digest(place: bytes, asked: msgspec.Struct) -> bytes:
    return blake2b(place + msgspec.json.encode(asked), digest_size=_DIGEST).digest()


def read_token(token: str, asked: msgspec.Struct, kind: type[T]) -> T:
    """Return the place of a token. Raises InvalidMessage for a token of another query."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        place = msgspec.msgpack.decode(raw[_DIGEST:], type=kind)
    except (ValueError, msgspec.MsgspecError):
        raise InvalidMessage("pageToken", "is not a token of this API; start without a token") from None
    if token_of(place, asked) != token:
        raise InvalidMessage(
            "pageToken", "is a token of another search; repeat the same search, or start without a token"
        )
    return place
