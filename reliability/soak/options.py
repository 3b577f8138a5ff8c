"""The options of a soak, and its faults."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from reliability.chaos.faults import KINDS, Fault
from reliability.chaos.options import Options
from tests.support.servers import REDIS_SERVER

#: Seconds between two faults.
EVERY = 60.0
#: Faults that end a process and start it again.
_RESTARTS = ("kill-worker", "kill-redis", "kill-api", "stop-worker", "kill-zookeeper")
_ZOOKEEPERS = 1
_FINAL_WINDOW = 60_000  # ms
_NAMES = tuple(name for name, kind in KINDS.items() if kind.weight)


def draw(seed: int, seconds: float, every: float, counts: Mapping[str, int]) -> tuple[Fault, ...]:
    """A fault every so many seconds, each kind once before any comes again.

    Faults that restart a process happen in the first half: in the second each process lives long enough to be judged.
    """
    dice = random.Random(f"soak {seed}")
    hands: dict[bool, list[str]] = {True: [], False: []}
    drawn = []
    at = every / 2
    while at < seconds:
        restart = at < seconds / 2
        if not hands[restart]:
            hands[restart] = [name for name in _NAMES if (name in _RESTARTS) is restart and counts[KINDS[name].victims]]
            dice.shuffle(hands[restart])
        name = hands[restart].pop()
        kind = KINDS[name]
        lasts = dice.uniform(kind.shortest, kind.longest)
        drawn.append(Fault(round(at, 3), name, dice.randrange(counts[kind.victims]), round(lasts, 3)))
        at += every
    return tuple(drawn)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ends with 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.soak",
        description="Traffic for long, with a fault now and then: nothing is lost or early, and neither memory nor file "
        "descriptors nor threads grow.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (%(default)s)")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second (%(default)s)")
    parser.add_argument("--faults-every", type=float, default=EVERY, help="seconds between faults (%(default)s)")
    parser.add_argument("--apis", type=int, default=2, help="API processes (%(default)s)")
    parser.add_argument("--seed", type=int, help="draw the same traffic and the same faults again (new: at random)")
    parser.add_argument("--out", type=Path, help="folder of what it finds and leaves (build/soak/<time>-<seed>)")
    given = parser.parse_args(words)
    if given.minutes <= 0 or given.rate < 1 or given.faults_every <= 0 or given.apis < 1:
        parser.error("minutes, rate, faults-every and apis are more than 0")
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(1_000_000)
    if given.out is None:
        given.out = Path("build") / "soak" / time.strftime(f"%Y%m%d-%H%M%S-{given.seed}")
    if given.out.exists() and any(given.out.iterdir()):
        parser.error(f"{given.out} is not empty: what it keeps would be taken for this run's")
    return given


def options_of(given: argparse.Namespace, *, zookeeper: bool) -> Options:
    """The run that a command line asks for; without a ZooKeeper there is one worker."""
    nodes, zookeepers = (2, _ZOOKEEPERS) if zookeeper else (1, 0)
    counts = {
        "workers": nodes, "apis": given.apis, "redis": 1, "target": 1, "zookeepers": zookeepers,
        "worker-redis": nodes, "api-redis": given.apis, "worker-zookeeper": nodes if zookeepers else 0,
        "worker-target": nodes,
    }  # fmt: skip
    return Options(
        minutes=given.minutes,
        seed=given.seed,
        rate=given.rate,
        faults_every=given.faults_every,
        apis=given.apis,
        redis=REDIS_SERVER or "",
        nodes=nodes,
        zookeepers=zookeepers,
        by_client=1,
        final_window=_FINAL_WINDOW,
        longest_delay=min(20.0, given.minutes * 20),
        folder=given.out.resolve(),
        aimed=draw(given.seed, given.minutes * 60, given.faults_every, counts),
    )
