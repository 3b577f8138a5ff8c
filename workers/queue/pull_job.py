"""The pull job pulls one queue while this node owns it.

`ask` returns the commands to send; `take` processes their replies. In between, the thread of the queue's server sends them,
together with the commands of other queues. Senders report into an inbox, so only that thread touches the messages
in flight.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeGuard, TypeVar

import structlog

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.domain.policies import NO_POLICIES, Policies, number_of
from delayq.store import commands
from delayq.store.commands import Applied, Command, Now, Outdated, Pulled, Released
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.limits.limit import Limit
from workers.queue.census import CensusTaker
from workers.queue.in_flight import InFlight
from workers.queue.outcomes import Ack, Bury
from workers.queue.parked_sets import ParkedSets
from workers.queue.pull import AT_ONCE, LONGEST_WAIT, Pull, Pulling
from workers.queue.queue_context import QueueContext
from workers.queue.releasing import Release, Releasing
from workers.queue.settlement import Step
from workers.queue.symptoms import LossDetector, Progress
from workers.queue.topics import Topics
from workers.sending.message import InFlightMessage
from workers.sending.stall_detector import StallDetector

#: ms until the next pull if the queue has other policies than this node, or the worker may not send. A change of either
#: ends the wait.
OUTDATED_WAIT: Final = 100
Brought = TypeVar("Brought", Pulled, Released)
log = structlog.get_logger()


class SliceOfWork(Protocol):
    """Work beside the pulls of a queue. It runs a slice at a time, while no backlog drains."""

    def ask(self, now: Now, version: str) -> Command[Any] | None:
        """The command of the next slice under this version of the policies, or None if it is too early."""

    def take(self, answer: Any) -> None:
        """Process the answer, which may be a StoreError. If no answer arrives, `ask` returns the same slice later."""


class _Tick:
    """The commands of one tick, each with the function that takes its answer, and the results so far."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.work: list[tuple[Command[Any], Callable[[Any], None]]] = []
        self.settled = {ticket for step in steps for ticket in step.tickets}  # tickets that the steps settle
        self.confirmed = False  # a message was acked or buried, or appended to a stream
        self.changed = False  # the set of streams that refuse messages has changed
        self.outdated = False  # the queue has other policies than this node
        self.error: StoreError | None = None  # the first one
        self.to_repeat: set[tuple[object, str]] = set()  # kinds of steps with a failure
        self.pulls = 0
        self.why_not: list[str] = []  # the reason of each pull that returned nothing

    def add(self, command: Command[Any], take: Callable[[Any], None]) -> None:
        self.work.append((command, take))

    def fail(self, error: StoreError) -> None:
        """Note that a command failed, which the job treats as trouble."""
        self.error = self.error or error


class PullJob:
    """Pulls one queue under one epoch. `test_now` returns a time for the scripts; without it they use the clock of Redis."""

    def __init__(
        self,
        context: QueueContext,
        parked: Sequence[str],
        topics: Topics,
        *,
        stalls: StallDetector | None = None,
        losses: LossDetector | None = None,
        test_now: Callable[[], int] | None = None,
    ) -> None:
        self.keys = keys = context.keys
        self.epoch = context.incarnation.epoch
        self.fenced = False
        self.ticked_at = context.clock.monotonic()
        self.looks_at = AT_ONCE  # by the precise monotonic clock
        self._asked_at = self._answered_at = 0.0  # when the last tick began, and when the last answered one began
        self.parked = ParkedSets(partial(_has_sender, context))
        self.in_flight = InFlight(context, self.parked, topics, self.report)
        self._context = context
        self.topics = topics
        self._clock = context.clock
        self._stalls = stalls
        self._losses = losses if losses is not None else LossDetector()
        self._test_now = test_now
        self._releasing = Releasing(context, self.in_flight, topics, self)
        self._pulling = Pulling(context, self.in_flight, topics)
        self._beside: list[SliceOfWork] = [CensusTaker(keys, self.epoch, context.clock, context.pace)]
        self._progress = Progress(keys.tag, context.clock, context.bounds.stuck_after)
        self._policies = NO_POLICIES
        #: The other version of the policies that the last pull found in the queue, and the policies of this job then.
        self._outdated: tuple[str, Policies] | None = None
        self._tick = _Tick()
        self._refused: StoreError | None = None  # why Redis refused a command, until the streams have been checked
        self._troubles = 0
        self._lock = threading.Lock()
        self._inbox: list[tuple[Sequence[InFlightMessage], Sequence[Result] | None]] = []
        self._wake: int | None = None
        self._look = False
        self._woken = False
        self._stopping = False
        self._wake_puller: Callable[[], None] = lambda: None
        self._puller_lives: Callable[[], bool] = lambda: False
        self._ended = threading.Event()
        self.in_flight.observe_sets(parked, every=True)

    @property
    def version(self) -> str:
        """The version of the policies that the job acts on.

        The job has dropped the messages that these policies hold, except messages that were already being sent.
        """
        return self._policies.version

    @property
    def sending_paused(self) -> Mapping[str, int]:
        """The number of messages of each paused topic that are still being sent."""
        return self.in_flight.sending_paused

    @property
    def streams(self) -> Mapping[str, str]:
        """The streams in this Redis to which pulls append, each with the name of its route."""
        return self.topics.streams(self.keys)

    def now(self) -> int:
        """Unix ms by the clock of the last pull."""
        return self._pulling.now()

    # -- from other threads ------------------------------------------------------------------------------------------

    def report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        """Record the results of a batch for the next tick. Senders call this."""
        with self._lock:
            self._inbox.append((batch, results))
            self._woken = True
        self._wake_puller()

    def wake(self, due: int | None) -> None:
        """Note that a message is due at `due`. None means that the time is unknown, so the job looks now."""
        with self._lock:
            if due is None:
                self._look = True
            elif self._wake is None or due < self._wake:
                self._wake = due
            self._woken = True
        self._wake_puller()

    def limits_have_more(self, limits: Sequence[Limit]) -> None:
        """Wake the job: it is its turn to release messages of these limits."""
        with self._lock:
            self._woken = True
        self._wake_puller()

    def waits_for(self, limit: Limit) -> int:
        """The number of parked messages that wait for a limit."""
        return self._releasing.waits_for(limit)

    def pulled_by(self, wake: Callable[[], None], lives: Callable[[], bool]) -> None:
        """Attach the puller that runs this job: `wake` wakes it, and `lives` returns whether it runs."""
        self._wake_puller, self._puller_lives = wake, lives

    def stop(self) -> None:
        """Stop pulling. The job ends when every message that is being sent is settled. A second call does nothing."""
        self._stopping = True
        self.wake(None)

    def end(self) -> None:
        """Note that no puller runs the job now."""
        self._releasing.end_turns()
        self._ended.set()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the job; False if the time-out passes first."""
        return not self.alive or self._ended.wait(timeout_ms / 1000)

    @property
    def alive(self) -> bool:
        """Whether a live puller runs the job."""
        return self._puller_lives() and not self._ended.is_set()

    @property
    def stuck(self) -> bool:
        """Whether the job hands messages out but none was confirmed for a long time."""
        return self._progress.stuck

    @property
    def pulls_fail(self) -> str | None:
        """Why the pulls fail, if they have failed for a long time."""
        return self._progress.pulls_fail

    # -- for its puller ----------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the job is stopped or fenced, and every sent message is settled."""
        if not (self._stopping or self.fenced):
            return False
        return not self.in_flight.busy and not self._inbox

    def wants_to_look(self, now: float) -> bool:
        """Whether the job has work at this precise monotonic time. During a back-off nothing wakes it."""
        return now >= self.looks_at or (self._woken and not self._troubles)

    def is_settled(self, since: float) -> bool:
        """Whether the job has looked after `since` (precise monotonic time) and has no work and no message to send now."""
        if self._woken or self._asked_at < since or self._answered_at != self._asked_at:
            return False
        return (
            not (self.in_flight.busy or self.in_flight.waiting or self._inbox) and self.looks_at > self._clock.precise()
        )

    def goes_along(self, now: float) -> bool:
        """Whether the job looks now along with other queues, to save a packet. Routes allow a slack after the due time."""
        return now >= self.looks_at - self._context.routes.slack and not (self._troubles or self.in_backlog)

    @property
    def in_backlog(self) -> bool:
        """Whether the next look takes a slice of the backlog."""
        return self._pulling.in_backlog or self._releasing.in_backlog

    @property
    def presses(self) -> bool:
        """Whether the job has work that must not wait for its turn to drain the backlog."""
        fresh_in = self._pulling.fresh_in
        return self._woken or (fresh_in is not None and fresh_in <= 0)

    # -- a tick, in two halves ---------------------------------------------------------------------------------------

    def ask(self, *, backlog: bool = True) -> Sequence[Command[Any]]:
        """The commands to send now. Without `backlog` they take nothing from the backlog."""
        self._asked_at = self._clock.precise()
        ending = self._stopping or self.fenced
        self._read_inbox()
        if self._stalls is not None:
            self.in_flight.observe_stalls(self._stalls.count)
        policies = self._context.policies.current
        if policies is not self._policies:
            self.in_flight.observe_policies(policies)
            self._pulling.observe_policies(policies)
            self._releasing.end_turns()
            self._pulling.look()  # a pull lists the sets of topics whose pause has ended
            self._policies = policies  # last: from now on its node reports that it acts on them
        if ending:
            self.in_flight.stop_sending(fenced=self.fenced)
            self._releasing.end_turns()
        else:
            self.in_flight.drop_backed_off()
            self.in_flight.send_waiting(min(self.now(), self._clock.now()))
        now: Now = self._test_now() if self._test_now is not None else ""
        steps = self.in_flight.steps(now)
        self._tick = tick = _Tick(steps)
        for step in steps:
            tick.add(step.command, partial(self._answered, step))
        if not ending:
            for topic, takes in self._pulling.streams_to_ask(every=self._refused is not None).items():
                tick.add(takes, partial(self._answered_stream, topic))
            if self._refused is None and self._context.may_send():
                self._add_pulls(tick, now, policies, backlog=backlog)
        return [command for command, _ in tick.work]

    def _add_pulls(self, tick: _Tick, now: Now, policies: Policies, *, backlog: bool) -> None:
        if self._lags_behind(policies):
            tick.add(commands.apply_policies(self.keys, policies.version, policies.paused, now=now), self._saw_applied)
        if emptied := self._releasing.empty(policies, now):
            for release in emptied:
                tick.add(release.command, partial(self._released, release))
            return
        read_up_to = self._pulling.read_up_to  # by earlier pulls, since these may not read as far
        for pull in self._pulling.pulls(now, policies.version, backlog=backlog):
            tick.pulls += 1
            tick.add(pull.command, partial(self._pulled, pull))
        # Releases run after the pulls, which would park their messages again.
        if backlog or not self._releasing.in_backlog:
            unix = min(self.now(), self._clock.now())
            by_redis = self._pulling.by_redis
            for release in self._releasing.releases(policies, read_up_to, unix, now=now, by_redis=by_redis):
                tick.add(release.command, partial(self._released, release))
        if tick.pulls and not self._pulling.in_backlog:
            for beside in self._beside:
                if (command := beside.ask(now, policies.version)) is not None:
                    tick.add(command, beside.take)

    def _lags_behind(self, policies: Policies) -> bool:
        """Whether the queue has earlier policies than these: their caller may have died before it applied them.

        Redis may have lost these policies since the job read them, and answered other changes under a smaller number. So if
        the queue has another version, the job first reads the policies again. A queue without a version can lose nothing.
        """
        if self._outdated is None:
            return False
        found, doubted = self._outdated
        return (not found or policies is not doubted) and number_of(found) < number_of(policies.version)

    def _read_inbox(self) -> None:
        """Process the reports and wakes of other threads since the last tick."""
        with self._lock:
            inbox, self._inbox = self._inbox, []
            wake, self._wake = self._wake, None
            look, self._look = self._look, False
            self._woken = False
        if look:
            self._pulling.look()
        if wake is not None:
            self._pulling.rewind(wake)
        for place, (batch, results) in enumerate(inbox):
            try:
                if results is None:
                    self.in_flight.not_sent(batch)
                else:
                    self.in_flight.sent(batch, results, self.now())
            except Exception:
                with self._lock:
                    self._inbox[:0] = inbox[place + 1 :]
                raise

    def take(self, answers: Sequence[Any]) -> None:
        """Process the answers, in the order of the commands."""
        tick = self._tick
        self._pulling.see_clock(answers)  # the newest time of Redis decides which messages have expired
        for (_, take), answer in zip(tick.work, answers, strict=True):
            take(answer)
        if tick.settled:
            self._pulling.room_made()
        if tick.pulls:
            self._progress.pulled(tick.why_not[0] if len(tick.why_not) == tick.pulls else None)
        self._progress.record(confirmed=tick.confirmed, outstanding=self.in_flight.outstanding)
        self.looks_at = self._next_look(tick)
        self._answered_at = self._asked_at
        self.ticked_at = self._clock.monotonic()

    def _next_look(self, tick: _Tick) -> float:
        """When to look next, by the precise monotonic clock. A wake ends the wait earlier, except after trouble."""
        refused, self._refused = self._refused, None
        # If a refusal made this tick check the streams, and none of them had changed, no stream is at fault.
        if error := tick.error or (None if tick.changed else refused):
            return self._failed(error, was_refused=refused is not None)
        self._troubles = 0
        if tick.outdated and self._outdated is not None and (found := self._outdated[0]):
            self._context.policies.report_version(found)
            return self._after(OUTDATED_WAIT)
        if self.fenced or self._stopping:
            return AT_ONCE if self.in_flight.to_settle else self._after(LONGEST_WAIT)
        if not self._context.may_send():
            return self._after(OUTDATED_WAIT)
        # Settled messages have made room, perhaps for parked ones.
        room_made = bool(tick.settled and self.parked)
        returns = room_made or self._releasing.in_backlog or self.parked.changed or bool(self.parked.emptied)
        returns = returns or (self._releasing.waits_for_pulls and self._pulling.read_up_to is None)
        return self._pulling.looks_at(at_once=tick.changed or tick.outdated or returns)

    def _answered(self, step: Step, answer: Any) -> None:
        """Drop settled messages. After an error, later steps of the same kind are repeated, as they leave in order."""
        tick, kind = self._tick, (step.outcome, step.name)
        if isinstance(answer, StoreError):
            tick.fail(answer)
            tick.to_repeat.add(kind)
        elif kind not in tick.to_repeat:
            tick.confirmed = tick.confirmed or step.outcome in (Ack, Bury)
            self._fence(self.in_flight.answered(step, answer, min(self.now(), self._clock.now())))

    def _answered_stream(self, topic: str, answer: str | StoreError) -> None:
        if self._pulling.record_stream(topic, answer):
            self._tick.changed = True

    def _saw_applied(self, applied: Applied | StoreError) -> None:
        if isinstance(applied, StoreError):
            self._tick.fail(applied)
        else:
            self._outdated = None  # the next pull reports the version

    def _pulled(self, pull: Pull, answer: Pulled | Outdated | StoreError | None) -> None:
        """Accept pulled messages, except those that this tick settles.

        A server that had lost its scripts may have run the pull before it settled them.
        """
        tick = self._tick
        if self._took(answer):
            self._outdated = None
            self._pulling.take(pull, answer, tick.settled)
            if self._losses.compare(self.keys.number, answer.counted):
                self.parked.read_again()
                self._pulling.look()
        elif isinstance(answer, StoreError):
            self._pulling.failed(pull)
            tick.why_not.append(str(answer))
        elif isinstance(answer, Outdated):
            self._pulling.took_nothing(pull)
            tick.why_not.append(f"the queue has other policies ({answer.version}) than this node")

    def _released(self, release: Release, answer: Released | Outdated | StoreError | None) -> None:
        if self._took(answer):
            self._releasing.put_back(release, answer)
            self._pulling.take_released(answer)

    def _took(self, answer: Brought | Outdated | StoreError | None) -> TypeGuard[Brought]:
        """Whether Redis ran a pull or a release. Notes the reason if not."""
        tick = self._tick
        if isinstance(answer, StoreError):
            tick.fail(answer)
        elif isinstance(answer, Outdated):
            tick.outdated, self._outdated = True, (answer.version, self._policies)
        elif answer is None:
            self._fence(True)
        else:
            tick.confirmed = tick.confirmed or answer.appended > 0
            return True
        return False

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _failed(self, error: StoreError, *, was_refused: bool) -> float:
        """Handle a missing answer or a refusal. A single stream may be the cause, so the job checks all streams first."""
        self._continue_without_answer()
        if not isinstance(error, StoreUnavailable) and not was_refused:
            self._refused = error
            if self._pulling.streams_to_ask(every=True):
                return AT_ONCE
            self._refused = None
        log.warning("redis_trouble", queue=self.keys.tag, error=str(error))
        if not isinstance(error, StoreUnavailable):
            self._context.observer.failed()  # Redis answers and refuses: only an operator can fix that
        return self._trouble()

    def failed(self) -> None:
        """Reset after an unexpected error: messages that are not being sent or acked are pulled again."""
        self.looks_at = self._trouble()  # first: the job backs off even if the reset fails, too
        log.exception("tick_failed", queue=self.keys.tag)
        self._continue_without_answer()
        self._refused = None
        self.in_flight.reset()
        self._progress.pulled("an unexpected error; the log has it (tick_failed)")
        self._context.observer.failed()
        self.ticked_at = self._clock.monotonic()

    def _continue_without_answer(self) -> None:
        """Continue although the result of a command is unknown.

        The next incarnation fences the command if it arrives late. The command may have moved messages back into the queue,
        so the next pull begins at the head.
        """
        self._context.incarnation.advance()
        self.in_flight.rewind(0)
        self.parked.read_again()
        self._pulling.look()

    def _trouble(self) -> float:
        self._troubles = min(self._troubles + 1, 5)
        return self._after(min(500, 25 * 2**self._troubles) * random.uniform(0.5, 1))

    def _after(self, ms: float) -> float:
        return self._clock.precise() + ms

    def _fence(self, fenced: bool) -> None:
        if fenced and not self.fenced:
            log.warning("fenced", queue=self.keys.tag, epoch=self.epoch)
            self.fenced = True


def _has_sender(context: QueueContext, name: str) -> bool:
    """Whether this node has the target of a parked set. Messages in the set of a topic may have any target."""
    if ParkedSet.is_of_topic(name):
        return True
    if ParkedSet.is_of_lane(name):
        route = context.routes.find(ParkedSet.topic(name) or "")
        return route is not None and route.name in context.senders
    return ParkedSet.is_of_route(name) and ParkedSet.route(name) in context.senders
