"""Ids that delayq gives: UUIDs of version 7 in 22 characters, which sort by the time when they were made."""

from __future__ import annotations

import binascii
from collections.abc import Iterator

import uuid_utils

__all__ = ["ids_ending", "new_id"]

# Base 64 in the order of its characters, so that ids sort by time; no '.', which marks an ordering key's suffix,
# and none that a command line would take for an option.
_ORDERED = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)
_uuid7 = uuid_utils.uuid7
_b64 = binascii.b2a_base64
_DIGITS = "0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]


def new_id() -> str:
    """A new id: 22 characters of a uuid7, which sort by the time they were made."""
    return _b64(_uuid7().bytes)[:22].translate(_ORDERED).decode()


def ids_ending(suffix: str) -> Iterator[str]:
    """Up to 4,096 new ids that end in `suffix`, in order: one uuid7, two digits of whose random part count on."""
    first = new_id()
    head, tail = first[:19], first[21:] + suffix
    return (head + pair + tail for pair in _PAIRS)
