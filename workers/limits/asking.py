"""The limits of a node, and the threads that ask Redis for their permits: one for each server, as each has a puller. So a server
that hangs stops no limit that lies elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

import structlog

from delayq.clock import Clock
from delayq.policies import NO_POLICIES, Policies
from delayq.remembered import Remembered
from delayq.store import commands
from delayq.store.commands import Command, Granted, Now, Spending
from delayq.store.connect.address import Node
from delayq.store.connect.store import Store
from workers.limits.limit import IDLE, Limit, Listener
from workers.limits.rate import RateLimit
from workers.limits.slots import SlotLimit

__all__ = ["NodeLimits"]

#: The most limits that one packet asks for.
AT_A_TIME: Final = 200
LONGEST_WAIT: Final = 60_000
REMEMBERED: Final = 10_000  # topics whose limits are found without a look at the policies
PAUSE: Final = 100  # ms, after an error that nobody expected
log = structlog.get_logger()


def _failed() -> None:
    log.exception("limits_failed")


class _Asker:
    """Asks for the limits that lie on one server, `together` buckets in a command. `test_now` hands the scripts a time; None
    means the clock of Redis."""

    def __init__(self, store: Store, clock: Clock, together: int, test_now: Callable[[], int] | None) -> None:
        self._store = store
        self._clock = clock
        self._together = together
        self._test_now = test_now
        self._condition = threading.Condition(threading.Lock())
        self._due: dict[Limit, int] = {}  # when to ask for each
        self._wakes_at = 0  # while it sleeps
        self._server_ahead: tuple[int, int] | None = None  # its clock minus ours, by the last two answers
        self._stopping = False
        self.thread: threading.Thread | None = None

    def schedule(self, limit: Limit, at: int) -> None:
        """Ask for a limit at such a time, unless it is asked for earlier."""
        with self._condition:
            if self._due.get(limit, at + 1) > at:
                self._due[limit] = at
                if at < self._wakes_at:
                    self._condition.notify()

    def start(self) -> None:
        """Start the thread; again is harmless. Where it cannot be started now, the next call tries again."""
        with self._condition:
            if self.thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name="limits", daemon=True)
                try:
                    thread.start()
                    self.thread = thread
                except RuntimeError:
                    _failed()

    def stop(self) -> None:
        """End the thread; again is harmless."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.tick()
            except Exception:
                _failed()
                self._sleep(PAUSE)
            self._sleep()
        self._give_back()

    def _sleep(self, least: int = 0) -> None:
        with self._condition:
            now = self._clock.monotonic()
            if not self._stopping and (wait := max(least, self._wait(now))) > 0:
                self._wakes_at = now + wait
                self._clock.wait(self._condition, wait)
                self._wakes_at = 0

    def _give_back(self) -> None:
        """Give back all slots: nobody sends any more."""
        closed = [limit for limit in self._due if isinstance(limit, SlotLimit)]
        for limit in closed:
            limit.close()
        self._due = dict.fromkeys(closed, 0)
        try:
            self.tick()
        except Exception:
            _failed()

    def _wait(self, now: int) -> int:
        return max(0, min(self._due.values(), default=now + LONGEST_WAIT) - now)

    def tick(self) -> int:
        """Ask for what is due now; for how many ms there is nothing to do."""
        now = self._clock.monotonic()
        server_now: Now = "" if self._test_now is None else self._test_now()
        server_ahead = None if self._server_ahead is None else min(self._server_ahead)
        with self._condition:
            due = [limit for limit, at in self._due.items() if at <= now][:AT_A_TIME]
            for limit in due:
                del self._due[limit]
        rates: list[tuple[Limit, Spending]] = []
        slots: list[tuple[Limit, Command[int]]] = []
        for limit in due:
            wanted, again = limit.next_request(now, server_ahead, server_now)
            if isinstance(wanted, Spending):
                rates.append((limit, wanted))
            elif wanted is not None:
                slots.append((limit, wanted))
            elif again is not None:
                self.schedule(limit, again)
        if rates or slots:
            self._ask(rates, slots, now, server_now)
        with self._condition:
            return self._wait(self._clock.monotonic())

    def _ask(
        self, rates: list[tuple[Limit, Spending]], slots: list[tuple[Limit, Command[int]]], now: int, server_now: Now
    ) -> None:
        parts = [rates[first : first + self._together] for first in range(0, len(rates), self._together)]
        packet: list[Command[Any]] = [commands.spend_all([one for _, one in part], now=server_now) for part in parts]
        packet += [take for _, take in slots]
        answers: list[Any] = [None] * len(packet)
        try:
            answers = self._store.run_many(packet)
        finally:  # whatever happens, each of them is asked for again
            told: list[tuple[Limit, Any]] = []
            for part, answer in zip(parts, answers, strict=False):
                granted: list[Any] = answer if isinstance(answer, list) else [answer] * len(part)
                told += zip([limit for limit, _ in part], granted, strict=True)
            told += zip([limit for limit, _ in slots], answers[len(parts) :], strict=True)
            listeners: dict[Listener, dict[Limit, int]] = {}
            for limit, answer in told:
                again, waiting, count = limit.take_answer(answer, now)
                if again is not None:
                    self.schedule(limit, again)
                for listener in waiting:
                    listeners.setdefault(listener, {})[limit] = count
            if told and isinstance(answer := told[0][1], Granted):
                ahead = answer.now - now
                self._server_ahead = ahead if self._server_ahead is None else self._server_ahead[1], ahead
            for listener, limits in listeners.items():
                listener.limits_have_more(limits)


class NodeLimits:
    """All limits of a node, by which its queues and senders share permits. `outdated` is told of policies that are newer than
    the node's. With `test_now` no threads are started: `tick` asks."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        outdated: Callable[[str], None] = lambda version: None,
        *,
        test_now: Callable[[], int] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._outdated = outdated
        self._test_now = test_now
        self._lock = threading.Lock()
        self._rates: dict[str, RateLimit] = {}
        self._slots: dict[str, SlotLimit] = {}
        self._askers: dict[Node | None, _Asker] = {}
        self._forgot_at = 0  # monotonic ms
        self._policies = NO_POLICIES
        self._found: Remembered[str, tuple[Limit, ...]] = Remembered(
            REMEMBERED
        )  # the limits of each topic, by these policies

    def of(self, topic: str, policies: Policies, longest: int) -> tuple[Limit, ...]:
        """The limits of a topic whose sends take at most `longest` ms; rates first, see `begin`."""
        if policies is self._policies and (found := self._found.get(topic)) is not None:
            return found
        rate, slots = self.rate(topic, policies), policies.slots(topic)
        with self._lock:
            limits: list[Limit] = [] if rate is None else [rate]
            if slots is not None:
                if (known := self._slots.get(slots.name)) is None:
                    self._forget_unused()
                    known = self._slots[slots.name] = SlotLimit(slots, self._soon)
                known.update(slots, policies.version, longest)
                limits.append(known)
            if policies.version >= self._policies.version and policies is not self._policies:
                self._policies, self._found = policies, Remembered(REMEMBERED)
            if policies is self._policies:
                self._found.keep(topic, tuple(limits))
        return tuple(limits)

    def rate(self, topic: str, policies: Policies) -> RateLimit | None:
        """The limit on the rate of a topic."""
        if (bucket := policies.bucket(topic)) is None:
            return None
        with self._lock:
            if (known := self._rates.get(bucket.name)) is None:
                self._forget_unused()
                known = self._rates[bucket.name] = RateLimit(bucket, self._soon, self._outdated)
        if known.version != policies.version:
            known.update(bucket, policies.version, self._clock.monotonic())
        return known

    def by_permits(self, names: Iterable[str], now: int) -> list[RateLimit]:
        """The rates of these names that a pull may spend by permits only, because they are short or messages wait for them.

        A pull that spent from the bucket itself would overtake these messages. It is called for all limited topics of a queue
        at each pull.
        """
        known = self._rates
        return [rate for name in names if (rate := known.get(name)) is not None and rate.has_queue(now)]

    def _forget_unused(self) -> None:
        now = self._clock.monotonic()
        if now - self._forgot_at < IDLE:
            return
        self._forgot_at = now
        gone: set[Limit] = {one for known in (self._rates, self._slots) for one in known.values() if one.is_unused(now)}
        self._rates = {name: one for name, one in self._rates.items() if one not in gone}
        self._slots = {name: one for name, one in self._slots.items() if one not in gone}
        for topic in [topic for topic, found in self._found.items() if not gone.isdisjoint(found)]:
            self._found.pop(topic, None)

    def _soon(self, limit: Limit, at: int) -> None:
        server = self._store.server_of(limit.key)
        if (asker := self._askers.get(server)) is None:
            # The keys of a command lie in one slot of a Redis Cluster.
            together = AT_A_TIME if server is None else 1
            with self._lock:
                asker = self._askers.setdefault(server, _Asker(self._store, self._clock, together, self._test_now))
        asker.schedule(limit, at)
        if asker.thread is None and self._test_now is None:
            asker.start()

    def start_again(self) -> None:
        """Start the threads that could not be started when they were needed."""
        for asker in list(self._askers.values()):
            asker.start()

    def tick(self) -> int:
        """Ask for what is due, in this thread; for how many ms there is nothing to do."""
        return min((asker.tick() for asker in list(self._askers.values())), default=LONGEST_WAIT)

    def stop(self, timeout_ms: int) -> None:
        """End the threads, and give back what there is. What hangs is waited for no longer than this."""
        end = self._clock.monotonic() + timeout_ms
        for asker in self._askers.values():
            asker.stop()
        for asker in self._askers.values():
            if asker.thread is not None:
                asker.thread.join(max(0, end - self._clock.monotonic()) / 1_000)
