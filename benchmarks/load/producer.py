"""A process that schedules messages at a steady rate, whatever becomes of them: an open loop.

A message's due is its planned time and a random delay, so a producer that is late makes nothing look better.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.load.handshake import Handshake
from benchmarks.load.messages import make
from benchmarks.measures.schedule import schedule_all
from delayq import Client, Message

__all__ = ["Plan"]

TICK: Final = 5


class Plan(msgspec.Struct, frozen=True):
    """What is scheduled, and when: messages a second from a time on (Unix ms), least and most delay (ms).

    Without a time (0) `Traffic` begins as soon as all its processes are there.
    """

    url: str
    topics: tuple[str, ...]
    rate: int
    start: float
    seconds: float
    delays: tuple[int, int]

    @property
    def count(self) -> int:
        """How many messages."""
        return int(self.rate * self.seconds)


def batches(plan: Plan) -> Iterator[tuple[float, list[Message]]]:
    """When to schedule which messages."""
    least, most = plan.delays
    done = 0
    step = 0
    while done < plan.count:
        step += 1
        moment = plan.start + step * TICK
        wanted = min(plan.count, int(plan.rate * step * TICK / 1000)) - done
        if wanted:

            def due(chooser: random.Random, moment: float = moment) -> int:
                return int(moment) + chooser.randint(least, most)

            yield moment, list(make(wanted, due, seed=step, topics=plan.topics))
            done += wanted


def main() -> None:
    """Carry out on the Redis of the first argument the plan of the second; prints by how many ms it was late at most."""
    url, path = sys.argv[1:]
    late = 0.0
    with Client(url) as client:
        client.context()
        plan = msgspec.json.decode(Handshake(Path(path)).wait(), type=Plan)
        for moment, messages in batches(plan):
            sleep_until(moment)
            late = max(late, now() - moment)
            schedule_all(client, messages)
    print(late)


if __name__ == "__main__":
    main()
