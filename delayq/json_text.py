"""Values as JSON, also where memory runs out: then msgspec's own `encode` crashes the process, and this raises MemoryError."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["encode"]

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """The value as JSON; raises what `msgspec.json.encode` raises."""
    text = bytearray()
    _encoder.encode_into(value, text)
    return bytes(text)
