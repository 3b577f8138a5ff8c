"""Epochs: (era, number) as texts of equal length, so that Redis compares them as texts."""

from __future__ import annotations

import msgspec

__all__ = ["Claim", "epoch_text", "next_epoch"]


class Claim(msgspec.Struct, frozen=True):
    """A queue owned under an epoch, and the names of its parked sets."""

    queue: int
    epoch: str
    parked: tuple[str, ...] = ()


def epoch_text(era: int, number: int) -> str:
    """The epoch; numbers go up to 2^64."""
    return f"{era:010d}.{number:020d}"


def next_epoch(stored: str | None, era: int) -> str:
    """An epoch above the stored one, in this era or the stored one if that is later."""
    if stored is None:
        return epoch_text(era, 1)
    stored_era, number = (int(part) for part in stored.split("."))
    return epoch_text(max(era, stored_era), number + 1 if stored_era >= era else 1)
