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
from reliability.consuming.checker import Turn, Verdict, check
from reliability.consuming.consumer import ONE, QUEUES, SHARED
from reliability.consuming.faults import KINDS, RESHARDS, Injector
from reliability.consuming.records import now, read
from reliability.consuming.stack import CONSUMERS, GROUPS, Stack, started
from reliability.waiting import PATIENCE, GaveUp, join, wait_until

BATCH: Final = 10
#: A third of the messages has an ordering key.
TOPICS: Final = (ONE, *SHARED, QUEUES, QUEUES)
KEYED, KEYS = 3, 12


class _Producer:
    """Schedules messages in a thread, and repeats each batch with the same ids until it has the outcome."""

    def __init__(self, stack: Stack, rate: float) -> None:
        self._client = stack.client
        self._every = BATCH / rate  # s between two batches
        self._over = threading.Event()
        self.accepted: list[str] = []
        #: The places of the messages that have an ordering key.
        self.turns: dict[str, Turn] = {}
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
                if self._over.wait(self._every):
                    return
                self._schedule([self._message(number * BATCH + place) for place in range(BATCH)])
        except BaseException as error:
            self.failed.append(error)

    def _message(self, number: int) -> Message:
        key = f"key-{number // KEYED % KEYS}" if number % KEYED == 0 else ""
        topic = TOPICS[number % len(TOPICS)]
        return Message(topic=topic, id=f"m-{number}", body=f"m-{number}", ordering_key=key, delay_time=0)

    def _schedule(self, messages: list[Message]) -> None:
        deadline = time.monotonic() + PATIENCE
        while messages:
            outcomes = self._client.schedule_many(messages)
            left = []
            for message, one in zip(messages, outcomes, strict=True):
                if not isinstance(one, Scheduled):
                    left.append(message)
                    continue
                self.accepted.append(one.id)
                if message.ordering_key and one.due is not None:
                    self.turns[one.id] = Turn(f"{message.topic} {message.ordering_key} {one.queue}", one.due)
            messages = left
            if messages and time.monotonic() > deadline:
                raise GaveUp(f"{messages[0].id} could not be scheduled: {outcomes[-1]}")


def run(
    folder: Path,
    seed: int,
    faults: int,
    *,
    messages: int = 0,
    rate: float = 25,
    each_kind: bool = False,
    say: Callable[[str], None],
) -> Verdict:
    """Run in this folder, from the main thread, with at least so many messages, at most `rate` a second.

    With `each_kind` the first faults are one of each kind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _bounded() as again, started(folder, seed) as stack:
        say("started: faults and traffic begin")
        producer, injector = _Producer(stack, rate), Injector(stack, seed)
        wait_until(lambda: not _silent(stack, 0), "every consumer has asked once")
        producer.start()
        reshards = {faults * part // (len(RESHARDS) + 1): queues for part, queues in enumerate(RESHARDS, 1)}
        try:
            first = list(KINDS)[:faults] if each_kind else []
            for number in range(1, faults + 1):
                again()
                if number - 1 in reshards:
                    injector.reshard(reshards[number - 1])
                injector.inject(first.pop(0) if first else "")
                if number % 25 == 0:
                    say(f"{number} faults, {len(producer.accepted)} messages")
            while len(producer.accepted) < max(messages, 1) and not producer.failed:
                again()
                time.sleep(1)
        finally:
            producer.stop()
            injector.end()
        healed = now()
        try:
            wait_until(lambda: not stack.left(), "every group has settled every message")
        except GaveUp as error:
            raise GaveUp(f"{error}: {stack.left()}") from None
        wait_until(lambda: not _silent(stack, healed), "every consumer receives again")
        dead, unrecorded, ended = stack.dead(), stack.unrecorded(), stack.stop()
        verdict = _verdict(stack, producer, dead)
    verdict.others += injector.died + unrecorded + ended + [str(error) for error in producer.failed]
    say(", ".join(f"{kind} {count}" for kind, count in sorted(injector.injected.items())))
    return verdict


def _verdict(stack: Stack, producer: _Producer, dead: frozenset[str]) -> Verdict:
    places = {group: [place for place, one in enumerate(CONSUMERS) if one[0] == group] for group in GROUPS}
    lines = {group: [list(read(stack.records(place))) for place in found] for group, found in places.items()}
    return check(producer.accepted, lines, dead, producer.turns)


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
