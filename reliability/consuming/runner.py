"""One run: start everything, schedule messages while faults are injected, wait until all are settled, check the records."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from delayq import Message, Scheduled
from reliability.consuming.checker import Verdict, check
from reliability.consuming.consumer import TOPIC
from reliability.consuming.faults import KINDS, Injector
from reliability.consuming.records import now, read
from reliability.consuming.stack import CONSUMERS, GROUPS, Stack, started
from reliability.waiting import PATIENCE, GaveUp, join, wait_until

__all__ = ["run"]

BATCH: Final = 5
EVERY: Final = 0.2  # s between two batches


class _Producer:
    """Schedules messages in a thread, and repeats each batch with the same ids until it has the outcome."""

    def __init__(self, stack: Stack) -> None:
        self._client = stack.client
        self._over = threading.Event()
        self.accepted: list[str] = []
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="producer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Schedule nothing new; the last batch gets its outcome."""
        self._over.set()
        join([self._thread])

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if self._over.wait(EVERY):
                    return
                self._schedule([f"m-{number * BATCH + place}" for place in range(BATCH)])
        except BaseException as error:
            self.failed.append(error)

    def _schedule(self, ids: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while ids:
            messages = [Message(topic=TOPIC, id=id, body=id, delay_time=0) for id in ids]
            outcomes = self._client.schedule_many(messages)
            self.accepted += [id for id, one in zip(ids, outcomes, strict=True) if isinstance(one, Scheduled)]
            ids = [id for id, one in zip(ids, outcomes, strict=True) if not isinstance(one, Scheduled)]
            if ids and time.monotonic() > deadline:
                raise GaveUp(f"{ids[0]} could not be scheduled: {outcomes[-1]}")


def run(folder: Path, seed: int, faults: int, *, each_kind: bool = False, say: Callable[[str], None]) -> Verdict:
    """Run in this folder, from the main thread; with `each_kind` the first faults are one of each kind."""
    folder.mkdir(parents=True, exist_ok=True)
    with _bounded() as again, started(folder, seed) as stack:
        say("started: faults and traffic begin")
        producer, injector = _Producer(stack), Injector(stack, seed)
        producer.start()
        try:
            first = list(KINDS)[:faults] if each_kind else []
            for number in range(1, faults + 1):
                again()
                injector.inject(first.pop(0) if first else "")
                if number % 25 == 0:
                    say(f"{number} faults, {len(producer.accepted)} messages")
            wait_until(lambda: producer.accepted or producer.failed, "a message is accepted")
        finally:
            producer.stop()
        healed = now()
        try:
            wait_until(lambda: not stack.left(), "every group has settled every message")
        except GaveUp as error:
            raise GaveUp(f"{error}: {stack.left()}") from None
        wait_until(lambda: not _silent(stack, healed), "every consumer receives again")
        dead, ended = stack.dead(), stack.stop()
        verdict = _verdict(stack, producer, dead)
    verdict.others += injector.died + ended + [str(error) for error in producer.failed]
    say(", ".join(f"{kind} {count}" for kind, count in sorted(injector.injected.items())))
    return verdict


def _verdict(stack: Stack, producer: _Producer, dead: frozenset[str]) -> Verdict:
    places = {group: [place for place, one in enumerate(CONSUMERS) if one[0] == group] for group in GROUPS}
    lines = {group: [list(read(stack.records(place))) for place in found] for group, found in places.items()}
    return check(producer.accepted, lines, dead)


def _silent(stack: Stack, since: int) -> list[int]:
    """The consumers whose receives had no answer since then."""
    lines = {place: read(stack.records(place)) for place in range(len(CONSUMERS))}
    return [
        place for place, found in lines.items() if not any(one[0] > since and one[1] == "answered" for one in found)
    ]


@contextmanager
def _bounded() -> Iterator[Callable[[], object]]:
    """Raise GaveUp if a step takes too long. The function that this yields begins the time of the next step."""

    def stop(_: int, __: FrameType | None) -> None:
        raise GaveUp(f"a step of the run took more than {2 * PATIENCE:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, 2 * PATIENCE)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
