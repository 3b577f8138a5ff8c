"""Asks the buckets of limited rates, and for the slots of limits of what is sent at a time, for what the pull jobs of this node
could hand out: one thread, one packet at a time, and nothing while nobody wants any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import structlog

from delayq.clock import Clock
from delayq.store import commands
from delayq.store.commands import Command, Granted, Now
from delayq.store.connect.store import Store
from workers.queue.grants import Leases
from workers.queue.slots import SlotAsk

__all__ = ["LeaseThread"]

LONGEST_WAIT: Final = 60_000
PAUSE: Final = 100  # ms, after an error that nobody expected
log = structlog.get_logger()


class LeaseThread:
    """Serves `leases`. `test_now` hands the scripts a time; None means the clock of Redis."""

    def __init__(
        self, store: Store, leases: Leases, clock: Clock, *, test_now: Callable[[], int] | None = None
    ) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._test_now = test_now
        self._condition = threading.Condition()
        self._hurry = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    def hurry(self) -> None:
        """A bucket may have to be asked that nobody asks for; from any thread."""
        with self._condition:
            self._hurry = True
            self._condition.notify()

    def start(self) -> None:
        """Start the thread; again is harmless, from any thread. Where it cannot be started now, the next call tries again."""
        with self._condition:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="leases", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # who hurries has other things to do
                self._failed()
            else:
                self._thread = thread

    def start_if_hurried(self) -> None:
        """Start it if it could not be started when it was to hurry."""
        if self._hurry:
            self.start()

    def _run(self) -> None:
        while True:
            stopping = self._stopping
            if stopping:
                self._leases.slots.close()  # and one packet more gives back what is there
            try:
                wait = self.tick()
            except Exception:
                self._failed()
                wait = PAUSE
            if stopping:
                return
            with self._condition:
                if not self._hurry and not self._stopping:
                    self._clock.wait(self._condition, wait)
                self._hurry = False

    @staticmethod
    def _failed() -> None:
        log.exception("leases_failed")

    def tick(self) -> int:
        """Ask what is to be asked now; for how many ms there is nothing to do."""
        began = self._clock.monotonic()
        slots = self._leases.slots
        asks, again = self._leases.asks(began)
        takes, later = slots.asks(began)
        if asks or takes:
            now = self._test_now() if self._test_now is not None else ""
            wanted: list[Command[Any]] = [_take(ask, now) for ask in takes]
            wanted += [
                commands.spend(ask.bucket.name, ask.bucket.rate, ask.burst, ask.wanted, until=ask.until, now=now)
                for ask in asks
            ]
            answers = self._store.run_many(wanted)
            for ask, answer in zip(asks, answers[len(takes) :], strict=True):
                if isinstance(answer, Granted):
                    self._leases.granted(ask, answer, began)
                else:
                    self._leases.put_off(ask, began)
            for take, taken in zip(takes, answers[: len(takes)], strict=True):
                if isinstance(taken, int):
                    slots.taken(take, taken, began)
                else:
                    slots.put_off(take, began)
        at = min((one for one in (again, later) if one is not None), default=None)
        return LONGEST_WAIT if at is None else max(1, at - self._clock.monotonic())

    def stop(self) -> None:
        """End the thread; again is harmless."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def join(self, timeout_ms: int) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)


def _take(ask: SlotAsk, now: Now) -> Command[int]:
    given = [name for name, _ in ask.given]
    return commands.take_slots(ask.slots.name, ask.slots.most, ask.life, ask.wanted, ask.call, given, now=now)
