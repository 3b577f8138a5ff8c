"""Epochs: (era, number, owner) as texts of equal length, so that Redis compares them as texts."""

from __future__ import annotations

import secrets

import msgspec

_OWNERS = 10**10


class Claim(msgspec.Struct, frozen=True):
    """A queue owned under an epoch, and the names of its parked sets."""

    queue: int
    epoch: str
    parked: tuple[str, ...] = ()


def draw_owner() -> int:
    """A random number, so that two processes that compute the same number of an epoch still have different epochs."""
    return secrets.randbelow(_OWNERS)


def epoch_text(era: int, number: int, owner: int) -> str:
    """An epoch as text; its number is below 2^64."""
    return f"{era:010d}.{number:020d}.{owner:010d}"


def next_epoch(stored: str | None, era: int, owner: int) -> str:
    """An epoch of this owner above the stored one, in this era or the stored one if that is later."""
    if stored is None:
        return epoch_text(era, 1, owner)
    stored_era, number = (int(part) for part in stored.split(".")[:2])
    return epoch_text(max(era, stored_era), number + 1 if stored_era >= era else 1, owner)
