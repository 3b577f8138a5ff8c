"""The limits of a node, and the threads that ask Redis for their permits: one for each server, as each has a puller. So a server
that hangs stops no limit that lies elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Final

import structlog

from delayq.clock import Clock
from delayq.policies import Policies
from delayq.store.commands import Command, Now
from delayq.store.connect.address import Node
from delayq.store.connect.store import Store
from workers.limits.limit import Limit
from workers.limits.rate import RateLimit
from workers.limits.slots import SlotLimit

__all__ = ["NodeLimits"]

#: The most limits that one packet asks for. If a packet takes longer than SLOW (ms), the next one asks for half as many: else
#: each answer could arrive after its permits have ended.
AT_A_TIME: Final = 100
SLOW: Final = 100
LONGEST_WAIT: Final = 60_000
SILENT: Final = 300  # ms
PAUSE: Final = 100  # ms, after an error that nobody expected
log = structlog.get_logger()


def _failed() -> None:
    log.exception("limits_failed")


class _Asker:
    """Asks for the limits that lie on one server. `test_now` hands the scripts a time; None means the clock of Redis."""

    def __init__(
        self, store: Store, clock: Clock, forget: Callable[[Limit], None], test_now: Callable[[], int] | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._forget = forget
        self._test_now = test_now
        self._condition = threading.Condition()
        # A heap. A limit may stand in it several times: only the time that it is scheduled for counts.
        self._due: list[tuple[int, int, Limit]] = []
        self._count = 0
        self.at_a_time = AT_A_TIME
        self._began: int | None = None  # when it sent the request that is under way
        self._stopping = False
        self.thread: threading.Thread | None = None

    def silent(self, now: int) -> bool:
        """Whether the server has not answered for a while: what waits for it is set aside, so that other topics find room."""
        began = self._began
        return began is not None and now - began > SILENT

    def schedule(self, limit: Limit, at: int) -> None:
        """Ask for a limit at such a time, unless it is asked for earlier."""
        with self._condition:
            if limit.scheduled is not None and limit.scheduled <= at:
                return
            limit.scheduled = at
            self._count += 1
            heappush(self._due, (at, self._count, limit))
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
            if not self._stopping and (wait := max(least, self._wait())) > 0:
                self._clock.wait(self._condition, wait)

    def _give_back(self) -> None:
        """Give back all slots: nobody sends any more."""
        closed = {limit for _, _, limit in self._due if isinstance(limit, SlotLimit)}
        self._due = []
        for limit in closed:
            limit.close()
            limit.scheduled = None
            self.schedule(limit, 0)
        try:
            self.tick()
        except Exception:
            _failed()

    def _wait(self) -> int:
        return max(0, self._due[0][0] - self._clock.monotonic()) if self._due else LONGEST_WAIT

    def tick(self) -> int:
        """Ask for what is due now; for how many ms there is nothing to do."""
        now = self._clock.monotonic()
        asked: list[tuple[Limit, list[Any]]] = []
        packet: list[Command[Any]] = []
        server_now: Now = "" if self._test_now is None else self._test_now()
        while len(asked) < self.at_a_time and (limit := self._next(now)) is not None:
            wanted, again = limit.asks(now, server_now)
            if wanted:
                asked.append((limit, [None] * len(wanted)))
                packet += wanted
            elif again is not None:
                self.schedule(limit, again)
            else:
                self._forget(limit)
        self._began = now
        try:
            answers = iter(self._store.run_many(packet) if packet else ())
            asked = [(limit, [next(answers) for _ in those]) for limit, those in asked]
        finally:  # whatever happens, each of them is asked for again
            self._began = None
            slow = self._clock.monotonic() - now > SLOW
            self.at_a_time = max(1, self.at_a_time // 2) if slow else min(AT_A_TIME, 2 * self.at_a_time)
            for limit, those in asked:
                self.schedule(limit, limit.answered(those, now))
        return self._wait()

    def _next(self, now: int) -> Limit | None:
        with self._condition:
            while self._due and self._due[0][0] <= now:
                at, _, limit = heappop(self._due)
                if limit.scheduled == at:
                    limit.scheduled = None
                    return limit
            return None


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
        self._lacking: set[Limit] = set()

    def room_without_permits(self, now: int) -> int:
        """For how many limits more, which are not short and have no permits, messages may wait: they have some as soon as Redis
        has been asked. If thousands of topics have one, messages would grow stale before it has been asked for all of them."""
        with self._lock:
            self._lacking = {limit for limit in self._lacking if limit.waiting and limit.lacks(now)}
            slowest = min([asker.at_a_time for asker in self._askers.values()], default=AT_A_TIME)
            return max(0, slowest - len(self._lacking))

    def wait_without_permits(self, limit: Limit) -> None:
        """Messages wait for such a limit."""
        with self._lock:
            self._lacking.add(limit)

    def of(self, topic: str, policies: Policies, longest: int) -> tuple[Limit, ...]:
        """The limits of a topic whose sends take at most `longest` ms; rates first, see `begin`."""
        rate, slots = self.rate(topic, policies), policies.slots(topic)
        if slots is None:
            return (rate,) if rate is not None else ()
        with self._lock:
            known = self._slots.get(slots.name) or self._slots.setdefault(slots.name, SlotLimit(slots, self._soon))
        known.update(slots, policies.version, longest)
        return (rate, known) if rate is not None else (known,)

    def rate(self, topic: str, policies: Policies) -> RateLimit | None:
        """The limit on the rate of a topic."""
        if (bucket := policies.bucket(topic)) is None:
            return None
        with self._lock:
            if (known := self._rates.get(bucket.name)) is None:
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

    def _forget(self, limit: Limit) -> None:
        with self._lock:
            for known in (self._rates, self._slots):
                if known.get(limit.name) is limit:
                    del known[limit.name]

    def _soon(self, limit: Limit, at: int) -> None:
        server = self._store.server_of(limit.key)
        with self._lock:
            if (asker := self._askers.get(server)) is None:
                asker = self._askers[server] = _Asker(self._store, self._clock, self._forget, self._test_now)
        limit.silent = asker.silent
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
