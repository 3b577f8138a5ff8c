"""The pull job: what pulls one queue, while this node owns it.

`ask` returns the commands to send; `take` processes their replies. In between, the thread of the server that the queue lies on
sends them, together with those of its other queues. Senders report into an inbox, so only that thread touches the messages
in flight.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeGuard, TypeVar

import structlog

from delayq.errors import StoreError, StoreUnavailable
from delayq.policies import NO_POLICIES, Policies, number_of
from delayq.store import commands
from delayq.store.commands import Applied, Command, Now, Outdated, Pulled, Released
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.limits.limit import Limit
from workers.queue.census import CensusTaker
from workers.queue.in_flight import InFlight
from workers.queue.outcomes import Ack, Bury
from workers.queue.parked_sets import ParkedSets
from workers.queue.pull import LONGEST_WAIT, Pull, Pulling
from workers.queue.queue_context import QueueContext
from workers.queue.releasing import Release, Releasing
from workers.queue.settlement import Step
from workers.queue.symptoms import LossDetector, Progress
from workers.queue.topics import Topics
from workers.sending.message import InFlightMessage
from workers.sending.stall_detector import StallDetector

__all__ = ["PullJob"]

#: ms until the next pull from a queue that has other policies than this node, or by a worker that may not send, unless that has
#: changed before.
OUTDATED_WAIT: Final = 100
Brought = TypeVar("Brought", Pulled, Released)
log = structlog.get_logger()


class SliceOfWork(Protocol):
    """Work that is done beside the pulls of a queue, a slice at a time, while no backlog drains."""

    def ask(self, now: Now, version: str) -> Command[Any] | None:
        """The command of the next slice, by this version of the policies, if it is time for one."""

    def take(self, answer: Any) -> None:
        """Process its answer, which may be a StoreError. Without one the same slice is asked for again later."""


class _Tick:
    """The commands of one tick, each with the function that takes its answer, and what the answers have told so far."""

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.work: list[tuple[Command[Any], Callable[[Any], None]]] = []
        self.settled = {ticket for step in steps for ticket in step.tickets}  # tickets that the steps settle
        self.confirmed = False  # a message was acked or buried, or appended to a stream
        self.changed = False  # other streams refuse messages than before
        self.outdated = False  # the queue has other policies than this node
        self.error: StoreError | None = None  # the first one
        self.told_again: set[tuple[object, str]] = set()  # kinds of steps of which one has failed
        self.pulls = 0
        self.why_not: list[str] = []  # of each pull that brought nothing

    def add(self, command: Command[Any], take: Callable[[Any], None]) -> None:
        self.work.append((command, take))

    def fail(self, error: StoreError) -> None:
        """Note that a command failed, which the job treats as trouble."""
        self.error = self.error or error


class PullJob:
    """Pulls one queue under one epoch. `test_now` hands the scripts a time; None means the clock of Redis."""

    def __init__(
        self,
        context: QueueContext,
        parked: Sequence[str],
        topics: Topics,
        *,
        pulse: StallDetector | None = None,
        losses: LossDetector | None = None,
        test_now: Callable[[], int] | None = None,
    ) -> None:
        self.keys = keys = context.keys
        self.epoch = context.incarnation.epoch
        self.fenced = False
        self.ticked_at = context.clock.monotonic()
        self.looks_at = 0.0  # by the precise monotonic clock
        self._asked_at = self._answered_at = 0.0  # the last tick that was begun, and the last that was taken
        self.parked = ParkedSets(partial(_has_sender, context))
        self.in_flight = InFlight(context, self.parked, topics, self, self.report)
        self._context = context
        self.topics = topics
        self._clock = context.clock
        self._observer = context.observer
        self._pulse = pulse
        self._losses = losses if losses is not None else LossDetector()
        self._test_now = test_now
        self._releasing = Releasing(context, self.in_flight, topics, self)
        self._pulling = Pulling(context, self.in_flight, topics)
        self._beside: list[SliceOfWork] = [CensusTaker(keys, self.epoch, context.clock, context.pace)]
        self._progress = Progress(keys.tag, context.clock, context.bounds.stuck_after)
        self._policies = NO_POLICIES
        self._found: str | None = None  # the other version of the policies that the last pull found in the queue
        self._doubted: Policies | None = None  # the policies that this job went by then
        self._tick = _Tick()
        self._refused: StoreError | None = None  # why Redis refused a pull, until the streams have been asked
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
        """The version of the policies that it acts on. Messages that these hold and that were not yet being sent have been
        dropped."""
        return self._policies.version

    @property
    def sending_paused(self) -> Mapping[str, int]:
        """By topic, how many messages of paused topics are still being sent."""
        return self.in_flight.leaving

    @property
    def streams(self) -> Mapping[str, str]:
        """The streams in this Redis that it appends to, each with the name of its route."""
        return self.topics.streams(self.keys)

    def now(self) -> int:
        """Unix ms by the clock that the last pull went by."""
        return self._pulling.now()

    # -- from other threads ----------------------------------------------------------------------------------------

    def report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        """A sender says what became of a batch."""
        with self._lock:
            self._inbox.append((batch, results))
            self._woken = True
        self._wake_puller()

    def wake(self, due: int | None) -> None:
        """Something is due at `due` (None: nobody knows what, so look now)."""
        with self._lock:
            if due is None:
                self._look = True
            elif self._wake is None or due < self._wake:
                self._wake = due
            self._woken = True
        self._wake_puller()

    def limits_have_more(self, limits: Mapping[Limit, int]) -> None:
        """There are permits of limits, or room for messages that wait for them."""
        with self._lock:
            self._woken = True
        self._wake_puller()

    def waits_for(self, limit: Limit) -> int:
        """How many messages for streams in this Redis wait for permits of a limit."""
        return self.in_flight.awaiting.count_of(limit)

    def pulled_by(self, wake: Callable[[], None], lives: Callable[[], bool]) -> None:
        """A puller moves it from now on: `wake` wakes it, and `lives` says whether it runs."""
        self._wake_puller, self._puller_lives = wake, lives

    def stop(self) -> None:
        """Pull no more. It ends when all that is being sent is settled; again is harmless."""
        self._stopping = True
        self.wake(None)

    def end(self) -> None:
        """Nobody moves it any more."""
        self._releasing.want_nothing()
        self._ended.set()

    def join(self, timeout_ms: int) -> bool:
        """Wait for its end; False if it did not come in time."""
        return not self.alive or self._ended.wait(timeout_ms / 1000)

    @property
    def alive(self) -> bool:
        """Whether a puller that runs moves it."""
        return self._puller_lives() and not self._ended.is_set()

    @property
    def stuck(self) -> bool:
        """Whether it hands messages out and has had none confirmed for long."""
        return self._progress.stuck

    @property
    def pulls_fail(self) -> str | None:
        """Why it can pull nothing, if that has been so for long."""
        return self._progress.pulls_fail

    # -- what its puller asks --------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: stopped or fenced, and all that was sent is settled."""
        if not (self._stopping or self.fenced):
            return False
        return not self.in_flight.busy and not self._inbox

    def wants_to_look(self, now: float) -> bool:
        """Whether there is something to do, by the precise monotonic clock. While it backs off nothing wakes it."""
        return now >= self.looks_at or (self._woken and not self._troubles)

    def is_settled(self, since: float) -> bool:
        """Whether it has looked `since` then (by the precise monotonic clock), and has nothing left to do or to send by now."""
        if self._woken or self._asked_at < since or self._answered_at != self._asked_at:
            return False
        return (
            not (self.in_flight.busy or self.in_flight.waiting or self._inbox) and self.looks_at > self._clock.precise()
        )

    def goes_along(self, now: float) -> bool:
        """Whether it looks by now if others do: what is due may wait for as long as its routes say, and saves a packet."""
        return now >= self.looks_at - self._context.routes.slack and not (self._troubles or self.in_backlog)

    @property
    def in_backlog(self) -> bool:
        """Whether a look would take a slice of its backlog."""
        return self._pulling.in_backlog or self._releasing.in_backlog

    @property
    def presses(self) -> bool:
        """Whether it has something to do besides, which does not wait for its turn to take from its backlog."""
        fresh_in = self._pulling.fresh_in
        return self._woken or (fresh_in is not None and fresh_in <= 0)

    # -- a tick, in two halves -------------------------------------------------------------------------------------

    def ask(self, *, backlog: bool = True) -> Sequence[Command[Any]]:
        """The commands to send now; without `backlog` nothing is taken from its backlog."""
        self._asked_at = self._clock.precise()
        ending = self._stopping or self.fenced
        self._hear()
        if self._pulse is not None:
            self.in_flight.observe_pauses(self._pulse.stalls)
        policies = self._context.policies.current
        if policies is not self._policies:
            self.in_flight.observe_policies(policies)
            self._pulling.observe_policies(policies)
            self._pulling.look()  # a pull lists the sets of topics whose pause has ended
            self._policies = policies  # last: from now on its node says that it acts on them
        if ending:
            self.in_flight.stop_sending(fenced=self.fenced)
            self._releasing.want_nothing()
        else:
            self.in_flight.drop_backed_off()
            self.in_flight.send_waiting(min(self.now(), self._clock.now()))
        now: Now = self._test_now() if self._test_now is not None else ""
        steps = self.in_flight.steps(now)
        self._tick = tick = _Tick(steps)
        for step in steps:
            tick.add(step.command, partial(self._told, step))
        if not ending:
            for topic, takes in self._pulling.streams_to_ask(every=self._refused is not None).items():
                tick.add(takes, partial(self._told_of_stream, topic))
            if self._refused is None and self._context.may_send():
                self._ask_on(tick, now, policies, backlog=backlog)
        return [command for command, _ in tick.work]

    def _ask_on(self, tick: _Tick, now: Now, policies: Policies, *, backlog: bool) -> None:
        if self._lags_behind(policies):
            tick.add(commands.apply_policies(self.keys, policies.version, policies.paused, now=now), self._saw_applied)
        if emptied := self._releasing.empty(policies, now):
            for release in emptied:
                tick.add(release.command, partial(self._released, release))
            return
        read_up_to = self._pulling.read_up_to  # by the pulls before these, which may not come so far
        for pull in self._pulling.pulls(now, policies.version, backlog=backlog):
            tick.pulls += 1
            tick.add(pull.command, partial(self._pulled, pull))
        # Behind the pulls, which do not know of what it brings, and would set that aside again.
        if backlog or not self._releasing.in_backlog:
            unix = min(self.now(), self._clock.now())
            for release in self._releasing.releases(
                policies, read_up_to, unix, now=now, valid_until=self._pulling.valid_until
            ):
                tick.add(release.command, partial(self._released, release))
        if tick.pulls and not self._pulling.in_backlog:
            for beside in self._beside:
                if (command := beside.ask(now, policies.version)) is not None:
                    tick.add(command, beside.take)

    def _lags_behind(self, policies: Policies) -> bool:
        """Whether the queue is to get these policies: whoever set them may have died before.

        They may have been lost since they were read, and others answered under a smaller number: so they are read again once
        the queue has another version. A queue that has none has nothing to lose.
        """
        if self._found is None or (self._found and policies is self._doubted):
            return False
        return number_of(self._found) < number_of(policies.version)

    def _hear(self) -> None:
        """Take in what other threads have said since the last tick."""
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
        self.looks_at = self._take(self._tick, answers)
        self._answered_at = self._asked_at
        self.ticked_at = self._clock.monotonic()

    def _take(self, tick: _Tick, answers: Sequence[Any]) -> float:
        self._pulling.see_clock(answers)  # what is sent now is judged by the time that Redis has just told
        for (_, take), answer in zip(tick.work, answers, strict=True):
            take(answer)
        if tick.settled:
            self._pulling.room_made()
        if tick.pulls:
            self._progress.pulled(tick.why_not[0] if len(tick.why_not) == tick.pulls else None)
        self._progress.record(confirmed=tick.confirmed, outstanding=self.in_flight.outstanding)
        failed = tick.error
        refused, self._refused = self._refused, None
        if failed is None and refused is not None and not tick.changed:
            failed = refused  # it was no stream that is at fault
        if failed is not None:
            return self._failed(failed, was_refused=refused is not None)
        self._troubles = 0
        if tick.outdated and self._found:
            self._doubted = self._policies
            self._context.policies.report_version(self._found)
            return self._clock.precise() + OUTDATED_WAIT  # woken as soon as they have been read
        if self.fenced or self._stopping:
            return 0.0 if self.in_flight.to_settle else self._clock.precise() + LONGEST_WAIT  # a report ends it
        if not self._context.may_send():
            return self._clock.precise() + OUTDATED_WAIT
        # What was settled has made room, perhaps for some that are parked.
        room_made = bool(tick.settled and self.parked)
        returns = room_made or self._releasing.in_backlog or self.parked.changed or bool(self.parked.emptied)
        returns = returns or (self._releasing.waits_for_pulls and self._pulling.read_up_to is None)
        return self._pulling.looks_at(at_once=tick.changed or tick.outdated or returns)

    def _told(self, step: Step, answer: Any) -> None:
        """Let go of messages that are settled. After an error, later steps of the same kind are told again: they are taken off in
        order."""
        tick, kind = self._tick, (step.outcome, step.name)
        if isinstance(answer, StoreError):
            tick.fail(answer)
            tick.told_again.add(kind)
        elif kind not in tick.told_again:
            tick.confirmed = tick.confirmed or step.outcome in (Ack, Bury)
            self._fence(self.in_flight.answered(step, answer, min(self.now(), self._clock.now())))

    def _told_of_stream(self, topic: str, answer: str | StoreError) -> None:
        if self._pulling.told_of_stream(topic, answer):
            self._tick.changed = True

    def _saw_applied(self, applied: Applied | StoreError) -> None:
        if isinstance(applied, StoreError):
            self._tick.fail(applied)
        else:
            self._found = None  # the next pull tells

    def _pulled(self, pull: Pull, answer: Pulled | Outdated | StoreError | None) -> None:
        """Accept messages. A server that had lost its scripts may have pulled before it settled some: these stay out."""
        tick = self._tick
        if self._took(answer):
            self._found = None
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
            self._pulling.take_released(release, answer)

    def _took(self, answer: Brought | Outdated | StoreError | None) -> TypeGuard[Brought]:
        """Whether a pull or a release was run; note why not."""
        tick = self._tick
        if isinstance(answer, StoreError):
            tick.fail(answer)
        elif isinstance(answer, Outdated):
            tick.outdated, self._found = True, answer.version
        elif answer is None:
            self._fence(True)
        else:
            tick.confirmed = tick.confirmed or answer.appended > 0
            return True
        return False

    # -- trouble ---------------------------------------------------------------------------------------------------

    def _failed(self, error: StoreError, *, was_refused: bool) -> float:
        """Redis did not answer, or refused something. It may be one stream that it refuses: all are asked first."""
        self._go_on_unheard()
        if not isinstance(error, StoreUnavailable) and not was_refused:
            self._refused = error
            if self._pulling.streams_to_ask(every=True):
                return 0.0
            self._refused = None
        log.warning("redis_trouble", queue=self.keys.tag, error=str(error))
        if self._observer is not None and not isinstance(error, StoreUnavailable):
            self._observer.failed()  # it answers, and refuses: nobody but people can mend that
        return self._trouble()

    def failed(self) -> None:
        """After an error that nobody expected: what is not being sent or acked is pulled anew."""
        self.looks_at = self._trouble()  # first: it backs off even if its reset fails, too
        log.exception("tick_failed", queue=self.keys.tag)
        self._go_on_unheard()
        self._refused = None
        self.in_flight.reset()
        self._progress.pulled("an unexpected error; the log has it (tick_failed)")
        if self._observer is not None:
            self._observer.failed()
        self.ticked_at = self._clock.monotonic()

    def _go_on_unheard(self) -> None:
        """Go on although nobody knows what became of a command: it does nothing if it arrives later, and the next pull begins at
        the head of the queue, as the command may have put messages back there."""
        self._context.incarnation.advance()
        self.in_flight.rewind(0)
        self.parked.read_again()
        self._pulling.look()

    def _trouble(self) -> float:
        self._troubles = min(self._troubles + 1, 5)
        pause = min(500, 25 * 2**self._troubles)
        return self._clock.precise() + float(pause) * random.uniform(0.5, 1)

    def _fence(self, fenced: bool) -> None:
        if fenced and not self.fenced:
            log.warning("fenced", queue=self.keys.tag, epoch=self.epoch)
            self.fenced = True


def _has_sender(context: QueueContext, name: str) -> bool:
    """Whether messages that are parked under this name go to a target of this node. Those of topics go anywhere."""
    if ParkedSet.is_of_topic(name):
        return True
    if ParkedSet.is_of_lane(name):
        route = context.routes.find(ParkedSet.topic(name) or "")
        return route is not None and route.name in context.senders
    return ParkedSet.is_of_route(name) and ParkedSet.route(name) in context.senders
