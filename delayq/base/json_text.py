"""Encode values and bodies as JSON, and explain malformed JSON.

When memory runs out, msgspec's own `encode` crashes the process. This one raises MemoryError.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

_encoder = msgspec.json.Encoder()
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
#: Text whose escapes contain no surrogates, or both halves of a pair.
_PAIRED: Final = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+", re.DOTALL
)
#: The number of bytes that are searched for half a character, because the search costs time.
_READ: Final = 1_000_000


def encode(value: Any) -> bytes:
    """Return the value as JSON. Raises the errors of `msgspec.json.encode`."""
    text = bytearray()
    _encoder.encode_into(value, text)
    return bytes(text)


def text_or_base64(body: bytes) -> tuple[str | UnsetType, str | UnsetType]:
    """Return `body` and `bodyBase64` of an answer. One of them is unset: a body that is not UTF-8 is base 64."""
    try:
        return body.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(body).decode()


def explain(text: bytes, message: str) -> tuple[str, int]:
    """Explain why msgspec refuses a text with this message, and return the byte of the mistake."""
    found = _BYTE.search(message)
    at = len(text) if found is None else int(found.group(1))
    # msgspec has other words for half a pair of surrogates, such as 'truncated' or 'unexpected end of hex escape'.
    start = _before_lone_surrogate(text)
    if start is not None and start <= at:
        return f"a lone surrogate at byte {start}: half of a character such as an emoji", start
    if found is not None:
        return _BYTE.sub(f"at byte {at}", message.removeprefix("JSON is malformed: ")), at
    return "the text ends too early" + (", or has half a character" if at > _READ else ""), at


def _before_lone_surrogate(text: bytes) -> int | None:
    """Return the offset of the first escaped surrogate without its other half. It reads a bounded number of bytes."""
    end = _PAIRED.match(text, 0, _READ).end()  # type: ignore[union-attr] # it matches nothing, too
    return end if _SURROGATE.match(text, end) else None
