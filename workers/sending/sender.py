"""Sends messages to one target, with a bounded number of waiting messages and of parallel sends.

A send that hangs beyond its timeout is given up as 'unknown' and its thread is replaced, so that no other send waits for it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from delayq.base.clock import Clock
from delayq.domain.routes import Route
from delayq.targets import OK, Result, Target
from workers.limits.limit import Limit, begin
from workers.sending.circuit import Circuit
from workers.sending.groups import Group, Lines, Report, withdraw_from
from workers.sending.message import LOOK_AGAIN, InFlightMessage
from workers.sending.observer import NO_OBSERVER, Observer
from workers.sending.stall_detector import StallDetector

if TYPE_CHECKING:
    from workers.sending.spans import Spans

STALL = 100
GRACE = 1_000
#: ms after which a message that waits for a thread is not sent but pulled again, because it may have been cancelled.
OLDEST = 10_000
MOST_ABANDONED = 16
log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Send:
    """A send, from its begin to its end."""

    since: int
    groups: list[Group] = field(default_factory=list)
    count: int = 0  # of messages
    slots: dict[Limit, int] = field(default_factory=dict)  # permits that its messages have until it ends
    late: bool = False  # it waited for a limit for too long or the circuit has opened, and it has no permits
    abandoned: bool = False
    replaced: bool = False

    def add(self, group: Group, batch: list[InFlightMessage]) -> None:
        """Add messages of a group. Messages of one batch stay together, because each report costs their queue a round."""
        self.count += len(batch)
        for place, one in enumerate(self.groups):
            if one.since == group.since and one.report == group.report and one.stalls == group.stalls:
                self.groups[place] = one.of([*one.batch, *batch])
                return
        self.groups.append(group if batch is group.batch else group.of(batch))


class Sender:
    """Sends the messages of one route to its target."""

    def __init__(
        self,
        route: Route,
        target: Target,
        clock: Clock,
        *,
        threads: int,
        timeout: int,
        observer: Observer = NO_OBSERVER,
        on_circuit: Callable[[], None] = lambda: None,
        stalls: StallDetector | None = None,
        spans: Spans | None = None,
        may_send: Callable[[], bool] = lambda: True,
        note: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        self.route = route
        self.target = target
        self.timeout = route.send_timeout or timeout
        self.circuit = Circuit(clock)
        self._clock = clock
        self._observer = observer
        self._on_circuit = on_circuit  # called when the circuit opens or closes
        self._stalls = stalls
        self._spans = spans
        self._note = note  # called with the topics of each batch; by sending threads
        self._may_send = may_send  # whether this worker may begin a send now; called by sending threads
        self._threads = threads
        self._capacity = max(threads * min(target.max_batch, 500) * 2, threads)
        self._condition = threading.Condition()
        self._groups: deque[Group] = deque()
        self._lines = Lines()  # groups for which a thread has found no permits
        self._pending = 0  # messages that were accepted and not reported
        self._progress = clock.monotonic()
        self._sends: set[_Send] = set()
        self._abandoned: set[_Send] = set()  # given up; their threads have not returned
        self._stopping = False
        self._workers: list[threading.Thread] = []

    @property
    def room(self) -> int:
        """The number of messages that it accepts now. Messages that wait for a limit take no room from other topics."""
        return max(0, self._capacity - self._pending + self._lines.count)

    @property
    def stalled(self) -> bool:
        """Whether it has messages to send and no send has ended for STALL ms."""
        return self._pending > self._lines.count and self._clock.monotonic() - self._progress > STALL

    def now(self) -> int:
        """Monotonic ms."""
        return self._clock.monotonic()

    def waited(self, since: int | None) -> int:
        """The ms that have passed; 0 for None."""
        return self._clock.monotonic() - since if since is not None else 0

    @property
    def longest(self) -> int:
        """The ms after which a send has been given up."""
        return self.timeout + GRACE

    @property
    def longest_send(self) -> int:
        """The ms in which a message may arrive whose send begins now or was given up; from any thread.

        A hung send may take as long again as it has taken already.
        """
        with self._condition:
            oldest = min((send.since for send in self._abandoned), default=None)
        return self.longest + (self._clock.monotonic() - oldest if oldest is not None else 0)

    @property
    def busy(self) -> bool:
        """Whether an accepted message has no result."""
        return self._pending > 0

    def start(self) -> None:
        """Start the sending threads."""
        with self._condition:
            while len(self._workers) < self._threads:
                self._spawn()

    def _spawn(self) -> None:
        worker = threading.Thread(target=self._work, name=f"sender-{self.route.name}", daemon=True)
        self._workers.append(worker)
        worker.start()

    def submit(self, report: Report, batch: Sequence[InFlightMessage], stalls: int = 0) -> None:
        """Accept a batch. The caller has checked `room`, but more messages are accepted, too.

        `stalls` is the number of stalls at the pull. After another stall the messages are not sent.
        """
        with self._condition:
            now = self._clock.monotonic()
            if self._pending == self._lines.count:
                self._progress = now
            self._pending += len(batch)
            # A group is at most one send, so that a slow target does not look hung, and all threads help.
            most = self.target.max_batch
            for start in range(0, len(batch), most):
                self._groups.append(Group(report, list(batch[start : start + most]), stalls, now))
                self._condition.notify()

    def _next(self) -> _Send | None:
        with self._condition:
            while (send := self._begin(self._clock.monotonic())) is None:
                if self._stopping:
                    return None
                self._clock.wait(self._condition, 60_000)
            self._sends.add(send)
            return send

    def _begin(self, now: int) -> _Send | None:
        """Return the next send. Its messages have permits of all their limits; the others wait in the line of a limit."""
        send = _Send(now)
        if self._pending == self._lines.count:
            self._progress = now
        while (limit := self._lines.ready) is not None:
            group = self._lines.first(limit)
            if not self._fits(send, group):
                return send
            if now - group.since > LOOK_AGAIN or (self.circuit.open and not any(one.probe for one in group.batch)):
                return send if send.count else _Send(now, [self._lines.pop(limit)], late=True)
            count, lacking = self._take_permits(send, group.batch[0].limits, len(group.batch))
            self._lines.pop(limit)
            if count:
                send.add(group, group.batch[:count])
            if lacking is not None:
                self._lines.add(lacking, group.of(group.batch[count:]))
                self._lines.wait(lacking)
        while self._groups and self._fits(send, self._groups[0]):
            group = self._groups[0]
            begun, waiting = group.batch, list[tuple[Limit, Group]]()
            if group.has_limits:
                begun = []
                for limits, batch in group.by_limits.items():
                    count, lacking = 0, self._lines.of(limits)  # the groups of a line go first
                    if lacking is None:
                        count, lacking = self._take_permits(send, limits, len(batch))
                    begun += batch[:count]
                    if lacking is not None:
                        waiting.append((lacking, group.of(batch[count:])))
            self._groups.popleft()
            if begun:
                send.add(group, begun)
            for limit, rest in waiting:
                self._lines.add(limit, rest)
        return send if send.count else None

    def _fits(self, send: _Send, group: Group) -> bool:
        return not send.count or send.count + len(group.batch) <= self.target.max_batch

    def _take_permits(self, send: _Send, limits: tuple[Limit, ...], count: int) -> tuple[int, Limit | None]:
        """Take permits for `count` messages at most. Return their number, and a limit that has too few."""
        begun, lacking = begin(limits, self, count, self.longest, send.since) if limits else (count, None)
        for limit in limits:
            if limit.lasts:
                send.slots[limit] = send.slots.get(limit, 0) + begun
        return begun, lacking

    def limits_have_more(self, limits: Sequence[Limit]) -> None:
        """Begin sends of messages that wait for these limits, before all others; from any thread."""
        with self._condition:
            self._lines.notice(limits)
            permits = sum([limit.permits(self._clock.monotonic()) for limit in limits])
            self._condition.notify(-(-permits // self.target.max_batch))

    def waits_for(self, limit: Limit) -> int:
        """The number of messages without a permit; from any thread."""
        return self._lines.count_of(limit)

    def limited_of(self, report: Report) -> int:
        """The weight of a queue's messages that wait for limits."""
        return self._lines.weight_of(report)

    def withdraw(self, report: Report, which: Callable[[InFlightMessage], bool]) -> list[InFlightMessage]:
        """Return messages of a queue that are not being sent, if `which` is true."""
        with self._condition:
            found = self._lines.withdraw(report, which)
            self._groups = deque(withdraw_from(self._groups, report, which, found))
            self._pending -= len(found)
        return found

    def _work(self) -> None:
        while (send := self._next()) is not None:
            one = len(send.groups) == 1
            batch = send.groups[0].batch if one else [message for group in send.groups for message in group.batch]
            results = None if self._outdated(send) else self.send(batch)
            if not self._finish(send, results):
                return  # the send was given up, and another thread replaces this one

    def _outdated(self, send: _Send) -> bool:
        """Whether a message of the send must be pulled again first. There are three reasons:

        - The process stalled after the pull, so the queue may belong to another node.
        - The message waited for long or has expired, or the clock was set back before its due time.
        - The worker may not send now, because other processes may not know that it exists.
        """
        if send.late or self._waited_too_long(send) or not self._may_send():
            return True
        # This check comes last, so that the send begins right after it.
        return self._stalls is not None and any(group.stalls != self._stalls.count for group in send.groups)

    def _waited_too_long(self, send: _Send) -> bool:
        waited = send.since - min(group.since for group in send.groups)
        if waited <= 0:
            return False
        now = self._clock.now()
        return waited > OLDEST or any(
            message.score > now or message.expired(now) for group in send.groups for message in group.batch
        )

    def send(self, batch: Sequence[InFlightMessage]) -> Sequence[Result]:
        """Send a batch now. Return a result for each message, also after an exception."""
        limit = self.target.max_batch
        results: list[Result] = []
        if self._note is not None:
            self._note(one.topic for one in batch)
        for start in range(0, len(batch), limit):
            some = batch[start : start + limit] if len(batch) > limit else batch
            try:
                answer = self.target.send(some, self.timeout / 1000)
            except BaseException as error:  # a SystemExit of a library would end this thread without a result
                log.warning("send_failed", route=self.route.name, error=repr(error))
                answer = [Result.unknown(f"{type(error).__name__}: {error}")] * len(some)
            if len(answer) != len(some):
                answer = [Result.unknown("the target did not answer for every message")] * len(some)
            if len(some) == len(batch):
                return answer
            results += answer
        return results

    def _finish(self, send: _Send, results: Sequence[Result] | None) -> bool:
        with self._condition:
            if send.abandoned:
                self._abandoned.discard(send)
                return not send.replaced
            self._sends.discard(send)
            self._done(send)
        self._end(send)  # first, so that messages that wait for a limit need not wait for a pull job
        if results is not None:
            self._count(send, results, self._clock.monotonic() - send.since)
        start = 0
        for group in send.groups:
            end = start + len(group.batch)
            group.report(group.batch, results if results is None or len(send.groups) == 1 else results[start:end])
            start = end
        return True

    def _end(self, send: _Send) -> None:
        """Free the slots of a send."""
        now = self._clock.monotonic()
        for limit, count in send.slots.items():
            limit.end(count, now)

    def _done(self, send: _Send) -> None:
        self._pending -= sum(len(group.batch) for group in send.groups)
        self._progress = self._clock.monotonic()

    def _count(self, send: _Send, results: Sequence[Result], took: int) -> None:
        accepted = any(result is OK or result.outcome == "ok" for result in results)
        reached = accepted or any(result.outcome == "rejected" for result in results)
        full = any(result.outcome == "full" for result in results)
        ids = (message.id for group in send.groups for message in group.batch)
        after = max((result.after for result in results), default=0)
        reason = _reason(results)
        if self.circuit.sent(reached and not full, after, ids, full, reason, accepted=accepted):
            if self.circuit.open:
                log.warning("circuit_open", route=self.route.name, reason=reason)
            else:
                log.warning("circuit_closed", route=self.route.name)
            self._on_circuit()
            self._observer.circuit(self.route.name, self.circuit.open)
        self._observer.sent(self.route.name, results, took)
        if self._spans is not None:
            self._spans.sent(
                self.route.name, (message for group in send.groups for message in group.batch), results, took
            )

    @property
    def given_up(self) -> Mapping[str, int]:
        """The number of messages of each topic that may still arrive after their sends were given up; from any thread."""
        with self._condition:
            sends = list(self._abandoned)
        return Counter(message.topic for send in sends for group in send.groups for message in group.batch)

    def give_up_hung(self) -> None:
        """Report sends far beyond their timeout as unknown, and replace their threads."""
        now = self._clock.monotonic()
        with self._condition:
            hung = [send for send in self._sends if now - send.since > self.longest]
            for send in hung:
                send.abandoned = True
                self._sends.discard(send)
                self._done(send)
                self._abandoned.add(send)
                if len(self._abandoned) <= MOST_ABANDONED:
                    send.replaced = True
                    self._spawn()
            self._workers = [worker for worker in self._workers if worker.is_alive()]
        for send in hung:
            self._end(send)
            log.error("send_hung", route=self.route.name, messages=sum(len(group.batch) for group in send.groups))
            unknown = Result.unknown(f"no answer within {self.timeout} ms")
            self._count(send, [unknown], now - send.since)
            for group in send.groups:
                group.report(group.batch, [unknown] * len(group.batch))

    def stop(self) -> None:
        """End the threads once no message waits. A second call does nothing. Close the target after `join`."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def join(self, timeout_ms: int) -> None:
        """Wait for the threads, `timeout_ms` at most. A hung thread is a daemon, which ends with the process."""
        end = self._clock.monotonic() + timeout_ms
        for worker in list(self._workers):
            worker.join(max(0, end - self._clock.monotonic()) / 1000)


def _reason(results: Sequence[Result]) -> str:
    return next((result.reason for result in results if result.reason), "")
