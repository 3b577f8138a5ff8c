"""The limits of a node, and the threads that ask Redis for their permits.

Each server has its own thread, so a server that hangs stops only its own limits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from delayq.base.clock import Clock
from delayq.base.remembered import Remembered
from delayq.domain.policies import NO_POLICIES, Policies
from delayq.store import commands
from delayq.store.commands import MOST_SLOTS, Command, Granted, Now, SlotRequest, Spending
from delayq.store.connect.address import Node
from delayq.store.connect.store import Store
from delayq.store.keys import Keys
from workers.limits.limit import IDLE, Limit, Listener
from workers.limits.rate import RateLimit
from workers.limits.slots import SlotLimit

#: The most limits in one packet.
AT_A_TIME: Final = 200
LONGEST_WAIT: Final = 60_000
REMEMBERED: Final = 10_000  # topics whose limits are cached
#: ms without an answer of a server after which its limits count as short.
SILENT: Final = 300
log = structlog.get_logger()

_Asking = tuple[Limit, Spending | SlotRequest]


def _failed() -> None:
    log.exception("limits_failed")


def _command(keys: Keys, requests: list[Any], now: Now) -> Command[Any]:
    take = commands.spend_all if isinstance(requests[0], Spending) else commands.take_slots
    return take(keys, requests, now=now)


def _notify(called: Mapping[Listener, Sequence[Limit]]) -> None:
    for listener, limits in called.items():
        listener.limits_have_more(limits)


class _Asker:
    """Asks for the limits of one server, with `together` buckets in a command.

    `test_now` returns the time for the scripts; None means the clock of Redis.
    """

    def __init__(self, store: Store, clock: Clock, together: int, test_now: Callable[[], int] | None) -> None:
        self._store = store
        self._clock = clock
        self._together = together
        self._test_now = test_now
        self._condition = threading.Condition(threading.Lock())
        self._due: dict[Limit, int] = {}  # the time of the next request for each
        self._wakes_at = 0  # the end of its sleep
        self._server_ahead: tuple[int, int] | None = None  # its clock minus that of this node, by the last two answers
        # When the packet was sent that is not answered yet, or the first request while there is no thread.
        self._unanswered_since: int | None = None
        self._stopping = False
        self.thread: threading.Thread | None = None

    def schedule(self, limit: Limit, at: int) -> None:
        """Schedule a request for a limit, unless an earlier one is scheduled."""
        with self._condition:
            if self._due.get(limit, at + 1) > at:
                self._due[limit] = at
                if at < self._wakes_at:
                    self._condition.notify()
                if self.thread is None and self._unanswered_since is None:
                    self._unanswered_since = at

    def is_silent(self, now: int) -> bool:
        """Whether its server has not answered for SILENT ms. Requests that wait for their turn here do not count."""
        since = self._unanswered_since
        return since is not None and now - since > SILENT

    def start(self) -> None:
        """Start the thread. A second call does nothing, or retries a failed start."""
        with self._condition:
            if self.thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name="limits", daemon=True)
                try:
                    thread.start()
                    self.thread, self._unanswered_since = thread, None
                except RuntimeError:
                    _failed()

    def stop(self) -> None:
        """End the thread. A second call does nothing."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.tick()
            except Exception:
                _failed()
                self._sleep(IDLE)
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
        """Give back all slots, because all sends have ended."""
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
        """Send the requests that are due; return the ms until the next ones."""
        now = self._clock.monotonic()
        server_ahead = None if self._server_ahead is None else min(self._server_ahead)
        with self._condition:
            due = [limit for limit, at in self._due.items() if at <= now][:AT_A_TIME]
            for limit in due:
                del self._due[limit]
        requests: list[_Asking] = []
        called: dict[Listener, list[Limit]] = {}
        for limit in due:
            request, again, listeners = limit.next_request(now, server_ahead)
            for listener in listeners:
                called.setdefault(listener, []).append(limit)
            if request is not None:
                requests.append((limit, request))
            elif again is not None:
                self.schedule(limit, again)
        _notify(called)
        if requests:
            self._unanswered_since = now
            self._ask(requests, now)
        self._unanswered_since = None
        with self._condition:
            return self._wait(self._clock.monotonic())

    def _parts(self, requests: list[_Asking]) -> list[list[_Asking]]:
        """The requests of each command, which all have one kind. Other clients wait while Redis runs a command."""
        parts: list[list[_Asking]] = []
        for kind in Spending, SlotRequest:
            room = slots = 0
            for limit, request in requests:
                if not isinstance(request, kind):
                    continue
                count = request.wanted + len(request.given) if isinstance(request, SlotRequest) else 0
                if not room or slots + count > MOST_SLOTS:
                    parts.append([])
                    room, slots = self._together, 0
                parts[-1].append((limit, request))
                room, slots = room - 1, slots + count
        return parts

    def _ask(self, requests: list[_Asking], now: int) -> None:
        test_now: Now = "" if self._test_now is None else self._test_now()
        parts = self._parts(requests)
        packet = [_command(self._store.keys, [request for _, request in part], test_now) for part in parts]
        answers: list[Any] = [None] * len(packet)
        try:
            answers = self._store.run_many(packet)
        finally:  # also after an error, schedule the next request of each limit
            answered: list[tuple[Limit, Any]] = []
            for part, answer in zip(parts, answers, strict=False):
                each: list[Any] = answer if isinstance(answer, list) else [answer] * len(part)
                answered += zip([limit for limit, _ in part], each, strict=True)
            called: dict[Listener, list[Limit]] = {}
            for limit, answer in answered:
                again, listeners = limit.take_answer(answer, now)
                if again is not None:
                    self.schedule(limit, again)
                for listener in listeners:
                    called.setdefault(listener, []).append(limit)
            if answered and isinstance(answer := answered[0][1], Granted):
                ahead = answer.now - now
                self._server_ahead = ahead if self._server_ahead is None else self._server_ahead[1], ahead
            _notify(called)


class NodeLimits:
    """All limits of a node, whose permits its queues and senders share.

    `outdated` is called with the version of policies that are newer than the node's. With `test_now` there are no threads, and
    `tick` sends the requests.
    """

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
        self._found: Remembered[str, tuple[Limit, ...]] = Remembered(REMEMBERED)  # by topic, for these policies

    def of(self, topic: str, policies: Policies, longest: int) -> tuple[Limit, ...]:
        """The limits of a topic whose sends take at most `longest` ms. Rates come first, see `begin`."""
        if policies is self._policies and (found := self._found.get(topic)) is not None:
            return found
        rate, slots = self.rate(topic, policies), policies.slots(topic)
        with self._lock:
            limits: list[Limit] = [] if rate is None else [rate]
            if slots is not None:
                if (known := self._slots.get(slots.name)) is None:
                    self._forget_unused(now := self._clock.monotonic())
                    known = self._slots[slots.name] = SlotLimit(slots, self._store.keys, self._soon, now)
                known.update(slots, policies.version, longest)
                limits.append(known)
            if policies.version >= self._policies.version and policies is not self._policies:
                self._policies, self._found = policies, Remembered(REMEMBERED)
            if policies is self._policies:
                self._found.keep(topic, tuple(limits))
        return tuple(limits)

    def rate(self, topic: str, policies: Policies) -> RateLimit | None:
        """The rate limit of a topic, or None."""
        if (bucket := policies.bucket(topic)) is None:
            return None
        with self._lock:
            if (known := self._rates.get(bucket.name)) is None:
                self._forget_unused(now := self._clock.monotonic())
                known = self._rates[bucket.name] = RateLimit(bucket, self._store.keys, self._soon, self._outdated, now)
        if known.version != policies.version:
            known.update(bucket, policies.version, self._clock.monotonic())
        return known

    def has_queue(self, name: str, now: int) -> bool:
        """Whether permits of the rate of this name are short, or messages wait for them.

        A pull that spent from the bucket itself would overtake these messages. Every pull asks for all its limited topics.
        """
        return (rate := self._rates.get(name)) is not None and rate.has_queue(now)

    def _forget_unused(self, now: int) -> None:
        """Forget unused limits before a new one comes, which counts as used until its messages are admitted."""
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
            # All keys of a command are in one slot of a Redis Cluster.
            together = AT_A_TIME if server is None else 1
            with self._lock:
                asker = self._askers.setdefault(server, _Asker(self._store, self._clock, together, self._test_now))
        limit.server = asker
        asker.schedule(limit, at)
        if asker.thread is None and self._test_now is None:
            asker.start()

    def start_again(self) -> None:
        """Start threads that could not be started before."""
        for asker in list(self._askers.values()):
            asker.start()

    def tick(self) -> int:
        """Send the requests that are due, in this thread; return the ms until the next ones."""
        return min((asker.tick() for asker in list(self._askers.values())), default=LONGEST_WAIT)

    def stop(self, timeout_ms: int) -> None:
        """End the threads, and give back all slots. Wait for `timeout_ms` at most."""
        end = self._clock.monotonic() + timeout_ms
        for asker in self._askers.values():
            asker.stop()
        for asker in self._askers.values():
            if asker.thread is not None:
                asker.thread.join(max(0, end - self._clock.monotonic()) / 1_000)
