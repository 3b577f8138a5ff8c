"""The options of a run: duration, rate, frequency of faults, and the seed."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from reliability.chaos.faults import KINDS, Fault
from reliability.waiting import PATIENCE

LONGEST_DELAY = 20.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """A run. Times are seconds (of `after` and `session_timeout` ms), `rate` is messages a second.

    Shares of the messages are `cancelled`, `moved`, or due at once (`short`). Some changes are made far from the due time:
    the share `after_due` of these is made `after` later. `aimed` faults replace the drawn ones. With `each_kind` each of
    `kinds` is injected once. Without ZooKeepers there is one worker. `by_client` producers do without HTTP. `redis` is
    the program of the server; the embedded one if empty.

    Callers repeat calls without an answer for `patience` s after the faults, and Redis remembers ended messages for
    longer (`final_window` ms). Within `drain` s every message must have ended.

    The timeouts of the service are short, because a fault has to outlast them. Sessions have 4 s, replies of Redis 2 s,
    sends 3 s. A busy machine may exceed them as well. That changes owners and repeats requests, as a fault does,
    and breaks no promise. The waits of the run itself have PATIENCE.
    """

    minutes: float = 1.0
    seed: int = 1
    rate: int = 1_200
    faults_every: float = 3.0
    nodes: int = 3
    apis: int = 2
    zookeepers: int = 3
    by_client: int = 0
    batch: int = 100
    cancelled: float = 0.06
    moved: float = 0.04
    after_due: float = 0.1
    after: tuple[int, int] = (20, 2_000)
    short: float = 0.15
    senders: int = 4
    longest_delay: float = LONGEST_DELAY
    patience: float = 90.0
    drain: float = PATIENCE
    session_timeout: int = 4_000
    final_window: int = 180_000
    redis: str = ""
    kinds: tuple[str, ...] = tuple(KINDS)
    mutant: str = ""
    each_kind: bool = False
    aimed: tuple[Fault, ...] | None = None
    folder: Path = Path()

    @property
    def seconds(self) -> float:
        """How long producers work and faults are injected."""
        return self.minutes * 60

    def plain(self) -> dict[str, object]:
        """For the history."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"folder": str(self.folder), "aimed": [one._asdict() for one in self.aimed or ()]}


def parse(words: Sequence[str] | None = None) -> Options:
    """The options of a command line; the folder of the history is new unless it is named."""
    parser = argparse.ArgumentParser(
        prog="python -m reliability.chaos",
        description="Traffic over HTTP while servers, processes and connections break; then the history is checked.",
    )
    default = Options()
    parser.add_argument("--minutes", type=float, default=default.minutes, help="how long (%(default)s)")
    parser.add_argument("--seed", type=int, help="draw the same traffic and the same faults again (new: at random)")
    parser.add_argument("--rate", type=int, default=default.rate, help="messages a second (%(default)s)")
    parser.add_argument(
        "--faults-every", type=float, default=default.faults_every, help="seconds between faults, about (%(default)s)"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="the faults to draw from (%(default)s)")
    parser.add_argument(
        "--each-kind", action="store_true", help="inject each kind of fault once instead, in an order that is drawn"
    )
    parser.add_argument("--apis", type=int, default=default.apis, help="API processes (%(default)s)")
    parser.add_argument("--history", type=Path, help="folder of the history (build/chaos/<time>-<seed>)")
    given = parser.parse_args(words)
    kinds = tuple(filter(None, given.kinds.split(",")))
    if strange := set(kinds) - set(KINDS):
        parser.error(f"there is no fault {', '.join(sorted(strange))}; there are {', '.join(KINDS)}")
    if given.minutes <= 0 or given.rate < 1 or given.faults_every <= 0 or given.apis < 1 or not kinds:
        parser.error("minutes, rate, faults-every and apis are more than 0, and some fault is needed")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    folder = given.history or Path("build") / "chaos" / time.strftime(f"%Y%m%d-%H%M%S-{seed}")
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder} is not empty: what it keeps would be taken for this run's")
    return Options(
        minutes=given.minutes,
        seed=seed,
        rate=given.rate,
        faults_every=given.faults_every,
        apis=given.apis,
        kinds=kinds,
        longest_delay=min(LONGEST_DELAY, given.minutes * 20),
        each_kind=given.each_kind,
        folder=folder.resolve(),
    )
