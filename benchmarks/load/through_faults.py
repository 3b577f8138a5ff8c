"""Steady traffic through faults: messages are scheduled at an even rate whatever happens, and followed to the stream."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final, Self

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now, wait_for
from benchmarks.load.backlog import sleep_until
from benchmarks.load.messages import QUEUES, make
from benchmarks.load.traffic import DELAYS, TICK
from benchmarks.results import percentile
from delayq import Client, Message, Scheduled, Settings
from delayq.base.errors import StoreError
from delayq.store.commands import plain
from delayq.store.connect.store import Store
from delayq.store.keys import Layout

#: The general path into a stream of the same Redis, where a fault can deliver a message twice.
GENERAL: Final = '[{"name":"steady","match":"*","path":"general"}]'
TOPIC: Final = "order.cancel"
#: Messages of one call at most, and ms at the end in which the producer repeats failed calls.
MOST: Final = 500
AFTER_MS: Final = 5_000
#: ms that the consumer blocks in a read, and s that it waits after a failed one.
BLOCK_MS: Final = 200
AGAIN_SECONDS: Final = 0.005
_LAYOUT: Final = Layout(QUEUES)


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A message at the consumer: its due time in Unix ms, its arrival in Unix ms with a fraction."""

    id: str
    due: int
    at: float

    @property
    def queue(self) -> int:
        """The queue of the message."""
        return _LAYOUT.queue_of(self.id)


class Steady:
    """The traffic inside `with`, by two threads: `accepted` maps ids to due times, `errors` has the times of failed calls.

    The producer repeats failed calls with the same ids. All times are Unix ms.
    """

    def __init__(self, url: str, rate: int, *, min_replicas: int = 0) -> None:
        self.accepted: dict[str, int] = {}
        self.errors: list[float] = []
        self.arrived: list[Arrived] = []
        self._settings = Settings(redis_url=url, min_replicas=min_replicas, routes=GENERAL)
        self._rate = rate
        self._scheduled_all, self._over = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        wait_for("the first message", lambda: bool(self.arrived), seconds=30)
        return self

    def __exit__(self, *_error: Any) -> None:
        self._scheduled_all.set()
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_again(self, since: float, seconds: float, queues: Iterable[int] = range(QUEUES)) -> dict[int, float]:
        """Wait until each of these queues has delivered a message that was due after that time; return `again` of them."""
        wanted = set(queues)
        wait_for(
            "deliveries after a fault",
            lambda: wanted <= again(self.arrived, since).keys(),
            seconds=seconds,
            pause=0.2,
        )
        return {queue: ms for queue, ms in again(self.arrived, since).items() if queue in wanted}

    def finish(self) -> int:
        """Stop the producer and wait up to 30 s for all accepted messages; return the number of lost ones."""
        self._scheduled_all.set()
        self._threads[0].join()
        end = now() + 30_000
        while (missing := self.accepted.keys() - {one.id for one in self.arrived}) and now() < end:
            time.sleep(0.2)
        return len(missing)

    def _produce(self) -> None:
        with Client(settings=self._settings) as client:
            client.context()
            moment = start = now()
            made, left = 0, list[Message]()
            while not self._scheduled_all.is_set():
                sleep_until(moment)
                wanted = min(MOST, int(self._rate * (now() - start) / 1000) - made)
                left = self._send(client, left[:MOST] + self._new(start, made, wanted)) + left[MOST:]
                made += max(0, wanted)
                moment = max(moment + TICK, now() - TICK)  # after a fault, larger calls catch up
            end = now() + AFTER_MS
            while left and now() < end:
                left = self._send(client, left[:MOST]) + left[MOST:]

    def _new(self, start: float, made: int, count: int) -> list[Message]:
        """Create messages whose due times follow from their planned times, however late this call is."""
        return [
            msgspec.structs.replace(
                message,
                id=f"steady-{number}",
                expect_date=int(start + 1000 * number / self._rate) + random.randint(*DELAYS),
            )
            for number, message in enumerate(make(count, lambda _: 0, seed=made, topics=(TOPIC,)), made)
        ]

    def _send(self, client: Client, messages: list[Message]) -> list[Message]:
        """Schedule messages, and return those of failed calls."""
        failed = []
        for message, outcome in zip(messages, client.schedule_many(messages), strict=True):
            if isinstance(outcome, Scheduled):
                self.accepted[outcome.id] = message.expect_date or 0
            else:
                failed.append(message)
        if failed:
            self.errors.append(now())
        return failed

    def _consume(self) -> None:
        last = b"0-0"
        with closing(Store(self._settings.redis_url)) as store:
            while not self._over.is_set():
                words = ("XREAD", "COUNT", 1000, "BLOCK", BLOCK_MS, "STREAMS", TOPIC, last)
                try:
                    reply: Any = store.run(plain(*words, key=TOPIC, read=lambda reply: reply))
                except StoreError:
                    time.sleep(AGAIN_SECONDS)
                    continue
                at = now()
                for _, entries in reply or ():
                    for _, fields in entries:
                        entry = dict(zip(fields[::2], fields[1::2], strict=True))
                        self.arrived.append(Arrived(entry[b"id"].decode(), int(entry[b"due"]), at))
                    last = entries[-1][0]


def again(arrived: Sequence[Arrived], since: float) -> dict[int, float]:
    """For each queue, the ms from a time until the first arrival of a message that was due after it."""
    first: dict[int, float] = {}
    for one in arrived:
        if one.due >= since:
            first[one.queue] = min(first.get(one.queue, one.at), one.at)
    return {queue: at - since for queue, at in first.items()}


def between(arrived: Sequence[Arrived], begin: float, end: float) -> list[Arrived]:
    """The arrivals of messages that were due in this time."""
    found = [one for one in arrived if begin <= one.due < end]
    if not found:
        raise BenchmarkError("no message was due in the measured time")
    return found


def late(arrived: Sequence[Arrived], begin: float, end: float, percent: float = 99) -> float:
    """A percentile of the lateness (ms) of the messages due in this time; only the first arrival of each counts."""
    first: dict[str, float] = {}
    for one in between(arrived, begin, end):
        first[one.id] = min(first.get(one.id, one.at - one.due), one.at - one.due)
    return percentile(sorted(first.values()), percent)


def twice(arrived: Sequence[Arrived], begin: float, end: float) -> int:
    """The number of repeated deliveries of messages due in this time."""
    found = between(arrived, begin, end)
    return len(found) - len({one.id for one in found})
