"""A process that schedules messages at a steady rate, through every fault: what fails is repeated with the same id.

It writes a line for each message when it is accepted, `id due`, and one for each call that failed, `error time`. On
SIGTERM it makes no new messages, repeats what failed for a moment, and ends.
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path
from typing import IO, Final

import msgspec

from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.load.messages import make
from benchmarks.load.producer import TICK
from benchmarks.load.through_faults import DELAYS, Plan
from delayq import Client, Message, Scheduled, Settings

__all__ = ["main"]

MOST: Final = 500
AFTER_MS: Final = 5_000


class Producer:
    """Carries out a plan."""

    def __init__(self, plan: Plan, client: Client, out: IO[str]) -> None:
        self._plan = plan
        self._client = client
        self._out = out
        self._made = 0
        self._again: list[Message] = []

    def run(self, stopping: list[int]) -> None:
        """Schedule until told to stop."""
        moment = self._plan.start
        while not stopping:
            sleep_until(moment)
            wanted = int(self._plan.rate * (now() - self._plan.start) / 1000) - self._made
            self.send(self.new(min(wanted, MOST)))
            moment = max(moment + TICK, now() - TICK)  # what a fault held up is made up for, in larger calls
        end = now() + AFTER_MS
        while self._again and now() < end:
            self.send([])

    def new(self, count: int) -> list[Message]:
        """Messages whose dues go by their planned times, however late this is."""
        found = []
        for message in make(max(0, count), lambda _: 0, seed=self._made, topics=(self._plan.topic,)):
            planned = self._plan.start + 1000 * self._made / self._plan.rate
            due = int(planned) + random.randint(*DELAYS)
            found.append(msgspec.structs.replace(message, id=f"steady-{self._made}", expect_date=due))
            self._made += 1
        return found

    def send(self, new: list[Message]) -> None:
        """Schedule them, and what failed before."""
        messages = self._again[:MOST] + new
        if not messages:
            return
        failed = []
        for message, outcome in zip(messages, self._client.schedule_many(messages), strict=True):
            if isinstance(outcome, Scheduled):
                self._out.write(f"{message.id} {message.expect_date}\n")
            else:
                failed.append(message)
        if failed:
            self._out.write(f"error {now():.0f}\n")
        self._again = failed + self._again[MOST:]
        self._out.flush()


def main() -> None:
    """Carry out the plan in the first argument until SIGTERM."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    settings = Settings(redis_url=plan.url, min_replicas=plan.min_replicas, routes=plan.routes)
    with Client(settings=settings) as client, Path(plan.file).open("w") as out:
        client.context()
        Producer(plan, client, out).run(stopping)


if __name__ == "__main__":
    main()
