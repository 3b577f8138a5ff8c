"""Values as JSON, and what is wrong with a text that is no JSON.

Where memory runs out, msgspec's own `encode` crashes the process. The one here raises MemoryError.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = ["encode", "explain"]

_encoder = msgspec.json.Encoder()
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
#: Text whose escapes are no surrogates, or both halves of a pair.
_PAIRED: Final = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+", re.DOTALL
)
#: How many bytes are searched for half a character: it costs time, too.
_READ: Final = 1_000_000


def encode(value: Any) -> bytes:
    """The value as JSON; raises what `msgspec.json.encode` raises."""
    text = bytearray()
    _encoder.encode_into(value, text)
    return bytes(text)


def explain(text: bytes, message: str) -> tuple[str, int]:
    """What is wrong with a text that msgspec refuses to decode with this message, and at which byte that is."""
    found = _BYTE.search(message)
    at = len(text) if found is None else int(found.group(1))
    # msgspec has other words for half a pair of surrogates, such as 'truncated' or 'unexpected end of hex escape'.
    start = _before_lone_surrogate(text)
    if start is not None and start <= at:
        return f"a lone surrogate at byte {start}: half of a character such as an emoji", start
    if found is not None:
        return _BYTE.sub(f"at byte {at}", message.removeprefix("JSON is malformed: ")), at
    return "the text ends too early" + (", or has half of a character" if at > _READ else ""), at


def _before_lone_surrogate(text: bytes) -> int | None:
    """The offset of the first escaped surrogate without its other half. It reads only as much as is cheap."""
    end = _PAIRED.match(text, 0, _READ).end()  # type: ignore[union-attr] # it matches nothing, too
    return end if _SURROGATE.match(text, end) else None
