"""The faults of a run: which there are, and how they are drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """How often a kind of fault is drawn (in proportion), which processes it may hit, and how long it lasts (s)."""

    weight: int
    victims: str  # workers, apis, redis, target, zookeepers, or the links between two of them
    shortest: float
    longest: float


#: 'reset' breaks connections once; 'refuse' breaks them and lets no new ones through. 'hole' answers nothing and
#: resets nothing; 'mute' lets requests through and swallows the replies.
KINDS: Final[Mapping[str, Kind]] = {
    "kill-worker": Kind(5, "workers", 0, 3),
    "pause-worker": Kind(4, "workers", 0.5, 9),
    "stop-worker": Kind(1, "workers", 0, 1),
    "kill-api": Kind(2, "apis", 0, 2),
    "pause-api": Kind(1, "apis", 0.5, 5),
    "kill-redis": Kind(3, "redis", 0, 1.5),
    "pause-redis": Kind(1, "redis", 0.5, 4),
    "kill-zookeeper": Kind(2, "zookeepers", 0.5, 5),
    "pause-zookeeper": Kind(1, "zookeepers", 0.5, 5),
    "reset-worker-redis": Kind(2, "worker-redis", 0, 0),
    "reset-api-redis": Kind(1, "api-redis", 0, 0),
    "reset-worker-zookeeper": Kind(1, "worker-zookeeper", 0, 0),
    "reset-worker-target": Kind(1, "worker-target", 0, 0),
    "refuse-worker-redis": Kind(1, "worker-redis", 0.5, 8),
    "hole-worker-redis": Kind(1, "worker-redis", 0.5, 8),
    "mute-worker-redis": Kind(1, "worker-redis", 0.3, 4),
    "refuse-api-redis": Kind(1, "api-redis", 0.5, 6),
    "hole-api-redis": Kind(1, "api-redis", 0.5, 6),
    "mute-api-redis": Kind(1, "api-redis", 0.3, 4),
    "refuse-worker-zookeeper": Kind(2, "worker-zookeeper", 0.5, 9),
    "hole-worker-zookeeper": Kind(2, "worker-zookeeper", 0.5, 9),
    "refuse-worker-target": Kind(1, "worker-target", 0.3, 3),
    "pause-target": Kind(0, "target", 0.5, 2),  # for what is aimed
    "hole-worker-target": Kind(0, "worker-target", 0.3, 2),
    "mute-worker-target": Kind(0, "worker-target", 0.3, 2),
}


class Fault(NamedTuple):
    """`at` and `seconds` are s, the first from the beginning of the traffic; `victim` is a place, -1 all of them."""

    at: float
    kind: str
    victim: int
    seconds: float


def draw_faults(
    seed: int, seconds: float, every: float, kinds: Sequence[str], counts: Mapping[str, int]
) -> list[Fault]:
    """The faults of so many seconds, one about `every` s; `counts` has how many victims of each sort there are."""
    dice = random.Random(f"faults {seed}")
    names = [name for name in kinds if KINDS[name].weight]
    weights = [KINDS[name].weight for name in names]
    drawn: list[Fault] = []
    at = every * dice.uniform(0.3, 1)
    while at < seconds and names:
        name = dice.choices(names, weights)[0]
        kind = KINDS[name]
        lasts = kind.shortest + (kind.longest - kind.shortest) * dice.random() ** 2  # mostly short ones
        drawn.append(Fault(round(at, 3), name, dice.randrange(counts[kind.victims]), round(lasts, 3)))
        at += every * dice.uniform(0.5, 1.5)
    return drawn


def deal_faults(seed: int, seconds: float, kinds: Sequence[str], counts: Mapping[str, int]) -> list[Fault]:
    """One fault of each kind, at even distances over so many seconds, in an order that is drawn."""
    dice = random.Random(f"each kind {seed}")
    names = [name for name in kinds if counts[KINDS[name].victims]]
    dice.shuffle(names)
    step = seconds / max(1, len(names))
    return [
        Fault(
            round((turn + 0.5) * step, 3),
            name,
            dice.randrange(counts[KINDS[name].victims]),
            round(dice.uniform(KINDS[name].shortest, KINDS[name].longest), 3),
        )
        for turn, name in enumerate(names)
    ]
