"""Producers: threads that schedule the drawn batches, and repeat with the same ids until they know the outcome.

The first ones do it over HTTP; `by_client` more by the library's client.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from delayq.config import Settings
from reliability.chaos.calls import Calls
from reliability.chaos.drawing import Planned, draw_batch
from reliability.chaos.history import History, now
from reliability.chaos.options import Options
from reliability.chaos.senders import ByClient, ByHttp, Sender
from reliability.waiting import join

THREADS = 3
AGAIN = 1.0
MOST_UNKNOWN = 2_000  # messages of a thread whose outcome is unknown before it schedules no new ones
Asked = tuple[Planned, int]

#: Called for each accepted message with the message, its id, the time of the request, and its due time.
Accepted = Callable[[Planned, str, int, int], None]


class Producers:
    """Start it, stop it; it makes no more messages then, and asks for a while for the outcomes that it does not know."""

    def __init__(
        self, options: Options, urls: Sequence[str], settings: Settings, history: History, accepted: Accepted
    ) -> None:
        self._options = options
        self._urls = urls
        self._settings = settings
        self._history = history
        self._accepted = accepted
        self._numbers = itertools.count()
        self.asked = 0  # about how many messages were asked for
        self._started = 0.0
        self._stopping = threading.Event()
        self._over = threading.Event()
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(one,), name=f"producer-{one}")
            for one in range(THREADS + options.by_client)
        ]

    def start(self) -> None:
        """Schedule, at the rate of the options."""
        self._started = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Send no new messages, and repeat calls with an unknown outcome for so long."""
        self._stopping.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        self._over.set()
        join(self._threads)

    def _run(self, place: int) -> None:
        sender = self._sender(place)
        try:
            self._produce(sender)
        except BaseException as error:
            self.failed.append(error)
        finally:
            sender.close()

    def _sender(self, place: int) -> Sender:
        if place < THREADS:
            return ByHttp(Calls(self._urls, place, self._history))
        return ByClient(self._settings)

    def _produce(self, sender: Sender) -> None:
        again: list[Asked] = []
        again_at = 0.0
        while not self._over.is_set() and (again or not self._stopping.is_set()):
            if again and time.monotonic() >= again_at:
                again = self._repeat(sender, again)
                again_at = time.monotonic() + AGAIN
            elif self._stopping.is_set() or len(again) >= MOST_UNKNOWN:
                self._over.wait(0.05)
            else:
                again += self._next(sender)

    def _next(self, sender: Sender) -> list[Asked]:
        """Schedule the next batch when its time has come; those without an outcome."""
        number = next(self._numbers)
        due_at = self._started + number * self._options.batch / self._options.rate
        while (left := due_at - time.monotonic()) > 0:
            if self._stopping.wait(left):
                return []
        batch = draw_batch(self._options, number)
        self.asked = (number + 1) * self._options.batch
        at = now()
        asked = [(one, one.due(at)) for one in batch]
        self._history.say("schedule", [(one.n, int(one.general), due) for one, due in asked])
        # One of them by itself: single requests share their way to Redis, which is another path through the API.
        return self._send(sender, asked[1:]) + self._send(sender, asked[:1])

    def _repeat(self, sender: Sender, again: list[Asked]) -> list[Asked]:
        size = self._options.batch
        return [one for start in range(0, len(again), size) for one in self._send(sender, again[start : start + size])]

    def _send(self, sender: Sender, asked: list[Asked]) -> list[Asked]:
        """Ask for these; those whose outcome is unknown."""
        if not asked:
            return []
        return self._take(asked, sender.send([one.wire(due) for one, due in asked]))

    def _take(self, asked: list[Asked], items: Sequence[Any]) -> list[Asked]:
        unknown, accepted, odd = [], [], []
        at = now()
        for (one, due), item in zip(asked, items, strict=True):
            if not item["status"] or item["status"] >= 500:
                unknown.append((one, due))
            elif item["status"] in (200, 201):
                accepted.append((one.n, item["dueMs"], item["queue"]))
            else:
                odd.append((one.n, item))
        # Before anything is changed: the checker reads in this order.
        if accepted:
            self._history.say("scheduled", accepted)
        if odd:
            self._history.say("odd", odd)
        for (one, _), item in zip(asked, items, strict=True):
            if item["status"] in (200, 201) and item["dueMs"] is not None:
                self._accepted(one, item["id"], at, item["dueMs"])
        return unknown
