"""What a message costs in this checkout beside another one, slot by slot: `changes`, which tells one or two percent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.beside import python_of
from benchmarks.load.side import Slot
from benchmarks.results import Figure
from benchmarks.slots import (
    BACKLOG,
    KEYED_BACKLOG,
    KEYED_NULL_BACKLOG,
    NULL_BACKLOG,
    Kind,
    Side,
    costs,
    in_slots,
    rates,
)

__all__ = ["KINDS", "changes"]

#: What is asked of a change that is to cost nothing.
GOAL: Final = 1.02

KINDS: Final = (
    Kind("delivery into a stream at 100/s", 20, Slot(100)),
    Kind("delivery into a stream at 1,000/s", 10, Slot(1_000)),
    Kind("delivery into a stream at 5,000/s", 4, Slot(5_000)),
    Kind("delivery into a stream at 1,000/s, with slack 50 ms", 10, Slot(1_000, slack=50)),
    Kind("delivery through the general path into a null target at 1,000/s", 10, Slot(1_000, null=True)),
    Kind("drain into Redis Streams", 6, BACKLOG),
    Kind("drain through the general path into a null target", 6, NULL_BACKLOG),
    Kind("drain with a business key into Redis Streams", 6, KEYED_BACKLOG),
    Kind("drain with a business key into a null target", 6, KEYED_NULL_BACKLOG),
)


def changes(other: Path, rounds: int, *, quick: bool, kinds: Sequence[Kind] = KINDS) -> list[Figure]:
    """Measure both; the other's figures stand as limits. With `quick` a quarter of the slots."""
    sides = {"there": Side(python_of(other), other), "here": Side()}
    figures: list[Figure] = []
    for kind in kinds:
        if quick:
            kind = msgspec.structs.replace(kind, slots=-(-kind.slots // 4))
        found = in_slots(kind, sides, rounds)
        figures.append(costs(kind.name, found["here"], found["there"], goal=GOAL))
        if kind.slot.drains:
            figures.append(rates(kind.name, found["here"], found["there"], goal=0.98))
    return figures
