"""The traffic of a run, drawn from its seed: batch by batch, the same whatever the threads do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from reliability.chaos.options import Options
from reliability.chaos.stack import GENERAL, STREAMS

#: ms around the due time in which a third of all changes is made.
CLOSE = 20
SHORT = 50  # ms
ORDERED, KEYED, ABSOLUTE, TOGETHER = 0.05, 0.05, 0.5, 0.05


@dataclass(frozen=True)
class Change:
    """A cancel, or a move to `to` ms from then.

    It is made `offset` ms from the due time or, if `place` is given, at that part of the way to the due time.
    """

    cancel: bool
    offset: int
    place: float | None
    to: int

    def at(self, scheduled: int, due: int) -> int:
        """When (Unix ms)."""
        if self.place is not None:
            return scheduled + int(self.place * max(0, due - scheduled))
        return due + self.offset


@dataclass(frozen=True)
class Planned:
    """A message that is to be scheduled."""

    n: int
    topic: str
    delay: int
    absolute: bool
    together: bool
    key: str
    ordering_key: str
    changes: tuple[Change, ...]

    @property
    def general(self) -> bool:
        """Whether it takes the general path."""
        return self.topic in GENERAL

    def due(self, now: int) -> int:
        """The requested due time (Unix ms), or the earliest possible one of a relative delay."""
        due = now + self.delay
        return due - due % 2_000 + 2_000 if self.together else due

    def wire(self, due: int) -> dict[str, Any]:
        """The body of the request."""
        fields: dict[str, Any] = {"id": str(self.n), "topic": self.topic, "body": {"n": self.n}}
        if self.absolute or self.together:
            fields["expectDate"] = due
        else:
            fields["delayTime"] = self.delay
        if self.key:
            fields["keys"] = [self.key]
        if self.ordering_key:
            fields["orderingKey"] = self.ordering_key
        return fields


def draw_batch(options: Options, number: int) -> list[Planned]:
    """The batch of this number, from 0."""
    dice = random.Random(f"batch {options.seed} {number}")
    first = number * options.batch
    return [_draw(options, dice, n) for n in range(first, first + options.batch)]


def _draw(options: Options, dice: random.Random, n: int) -> Planned:
    longest = options.longest_delay * 1000
    at_once = dice.random() < options.short
    delay = dice.randrange(SHORT) if at_once else int(SHORT + (longest - SHORT) * dice.random() ** 2)
    return Planned(
        n=n,
        topic=dice.choice(GENERAL + STREAMS),
        delay=delay,
        absolute=dice.random() < ABSOLUTE,
        together=dice.random() < TOGETHER,
        key=f"key-{n}" if dice.random() < KEYED else "",
        ordering_key=f"order-{dice.randrange(200)}" if dice.random() < ORDERED else "",
        changes=tuple(_draw_changes(options, dice, longest)),
    )


def _draw_changes(options: Options, dice: random.Random, longest: float) -> list[Change]:
    kind = dice.random()
    if kind < options.cancelled:
        return [_change(options, dice, cancel=True)]
    if kind < options.cancelled + options.moved:
        to = int(longest / 2 * dice.random() ** 2)
        changes = [_change(options, dice, cancel=False, to=to)]
        if dice.random() < 0.3:
            changes.append(_change(options, dice, cancel=True))
        return changes
    return []


def _change(options: Options, dice: random.Random, *, cancel: bool, to: int = 0) -> Change:
    if dice.random() < 1 / 3:
        return Change(cancel, dice.randint(-CLOSE, CLOSE), None, to)
    if dice.random() < options.after_due:
        return Change(cancel, dice.randint(*options.after), None, to)
    return Change(cancel, 0, dice.random(), to)
