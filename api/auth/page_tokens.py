"""Page tokens for callers that do not see everything: sealed, since they name a message that may be another's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from typing import Final

from delayq import InvalidMessage

__all__ = ["seal", "unseal"]

_NONCE: Final = 16
_MARK: Final = 16


def seal(text: str, secret: bytes) -> str:
    """A token in which nobody without the secret can read the text."""
    nonce = os.urandom(_NONCE)
    hidden = _mask(text.encode(), secret, nonce)
    return base64.urlsafe_b64encode(nonce + _mark(hidden, secret, nonce) + hidden).decode().rstrip("=")


def unseal(token: str, secret: bytes) -> str:
    """The text of a token; raises InvalidMessage for one that was not made with this secret."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    nonce, mark, hidden = raw[:_NONCE], raw[_NONCE : _NONCE + _MARK], raw[_NONCE + _MARK :]
    if not hidden or not hmac.compare_digest(mark, _mark(hidden, secret, nonce)):
        raise InvalidMessage("pageToken", "is not a token that this API gave out to this key; start without one")
    return _mask(hidden, secret, nonce).decode()


def _mask(text: bytes, secret: bytes, nonce: bytes) -> bytes:
    """Hide the text, or show what was hidden."""
    stream = hashlib.shake_256(b"mask" + secret + nonce).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))


def _mark(hidden: bytes, secret: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, nonce + hidden, "sha256")[:_MARK]
