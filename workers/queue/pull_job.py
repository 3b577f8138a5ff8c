"""The pull job: the one thread that pulls a queue, while this node owns it.

`tick` does what is to be done now and says when to look again; `run` only waits. Forwarders report into an inbox, so
everything that is held is touched by this thread alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from delayq.errors import StoreError, StoreUnavailable
from delayq.store.commands import Command, Now
from delayq.targets import Result
from workers.queue.history import History
from workers.queue.in_flight import InFlight
from workers.queue.parked_sets import ParkedSets
from workers.queue.parking import Parking
from workers.queue.pull import LONGEST_WAIT, Pull, Pulling
from workers.queue.refusals import Refusals
from workers.queue.settlement import Ack, Bury, Step
from workers.queue.stuck import Progress
from workers.queue.tenure import Tenure
from workers.queue.topics import Topics
from workers.sending.message import InFlightMessage
from workers.sending.pause_detector import Pulse

if TYPE_CHECKING:
    pass

__all__ = ["PullJob"]

#: ms for which what was confirmed may wait for the next pull, so that it takes no round trip of its own.
PATIENCE = 20
log = structlog.get_logger()


class PullJob:
    """Pulls one queue under one epoch. `test_now` hands the scripts a time; None means the clock of Redis."""

    def __init__(
        self, tenure: Tenure, parked: Sequence[str], topics: Topics, *, turns: threading.Semaphore | None = None,
        pulse: Pulse | None = None, history: History | None = None, test_now: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.keys = keys = tenure.keys
        self.epoch = tenure.incarnation.epoch
        self.fenced = False
        self.ticked_at = tenure.clock.monotonic()
        self._tenure = tenure
        self._topics = topics
        self._store = tenure.store
        self._clock = tenure.clock
        self._observer = tenure.observer
        self._pulse = pulse
        self._history = history if history is not None else History()
        self._test_now = test_now
        self.parked = ParkedSets()
        self.refusals = Refusals(tenure.routes)
        self.in_flight = InFlight(tenure, self.parked, self.refusals, self.report)
        self._parking = Parking(tenure, parked, self.parked, self.refusals, self.in_flight)
        self._pulling = Pulling(tenure, self.in_flight, self.parked, self.refusals, topics, turns)
        self.condition = threading.Condition()
        self._inbox: list[tuple[Sequence[InFlightMessage], Sequence[Result] | None]] = []
        self._wake: int | None = None
        self._woken = False
        self._looks_at: float | None = None  # monotonic; None: a report is to wake it
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._troubles = 0
        self._had_trouble = False
        self._progress = Progress(keys.tag, tenure.clock, tenure.policy.stuck_after)

    @property
    def streams(self) -> Mapping[str, str]:
        """The streams in this Redis that it appends to, each with the name of its route."""
        return self._topics.streams(self.keys)

    def now(self) -> int:
        """Unix ms by the clock that the last pull went by."""
        return self._pulling.now()

    # -- from other threads ----------------------------------------------------------------------------------------

    def report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        """A forwarder says what became of a batch."""
        with self.condition:
            self._inbox.append((batch, results))
            if not self._hears_soon(batch, results):
                self._woken = True
                self.condition.notify()

    def _hears_soon(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> bool:
        """Whether it looks soon without being told, and these are mere confirmations."""
        if self._looks_at is None or self._looks_at - self._clock.monotonic() > PATIENCE or results is None:
            return False
        if any(message.record.keyed for message in batch):  # the next one of its key waits for it
            return False
        return all(result.outcome == "ok" for result in results)

    def wake(self, due: int | None) -> None:
        """Look now; something is due at `due` (None: it is not known what)."""
        with self.condition:
            if due is not None and (self._wake is None or due < self._wake):
                self._wake = due
            self._woken = True
            self.condition.notify()

    def start(self) -> None:
        """Start the thread; again is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name=f"pull-job-{self.keys.tag}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Pull no more. The thread ends when all that is being sent is settled; again is harmless."""
        self._stopping = True
        self.wake(None)

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the thread; False if it did not end in time."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
            return not self._thread.is_alive()
        return True

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def stuck(self) -> bool:
        """Whether it hands messages out and has had none confirmed for long."""
        return self._progress.stuck

    @property
    def pulls_fail(self) -> str | None:
        """Why it can pull nothing, if that has been so for long."""
        return self._progress.pulls_fail

    def had_trouble(self) -> bool:
        """Whether Redis did not answer, or refused something, since this was asked last."""
        had, self._had_trouble = self._had_trouble, False
        return had

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tick and wait until stopped or fenced."""
        while not self.finished:
            pause = self.tick_whatever_happens()
            self.ticked_at = self._clock.monotonic()
            if pause > 0:
                patient = self._pulling.idle and not self._troubles
                with self.condition:
                    if not self._woken or self._troubles:
                        self._looks_at = self._clock.monotonic() + pause if patient else None
                        self._clock.wait(self.condition, pause)
                        self._looks_at = None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: stopped or fenced, and all that was sent is settled."""
        if not (self._stopping or self.fenced):
            return False
        return not self.in_flight.busy and not self._inbox

    def tick_whatever_happens(self) -> float:
        """As `tick`; after an error that nobody expected, what is not being sent or acked is pulled anew."""
        try:
            return self.tick()
        except Exception:
            log.exception("tick_failed", queue=self.keys.tag)
            self._progress.pulled("an unexpected error; the log has it (tick_failed)")
            if self._observer is not None:
                self._observer.failed()
            self._tenure.incarnation.go_on()
            self.in_flight.reset()
            return self._trouble()

    def tick(self) -> float:
        """Settle, pull and send what there is; the ms until it is to be called again (0 = at once)."""
        ending = self._stopping or self.fenced
        self._hear()
        if self._pulse is not None:
            self.in_flight.observe_pauses(self._pulse.pauses)
        if ending:
            self.in_flight.stop_sending(fenced=self.fenced)
        else:
            self._pulling.look_at_refusals()
            self.in_flight.drop_backed_off()
            self.in_flight.send_waiting(min(self.now(), self._clock.now()))
        now: Now = self._test_now() if self._test_now is not None else ""
        steps = self.in_flight.steps(now)
        unparks = [] if ending else self._parking.commands()
        try:
            pulls = [] if ending or self._parking.before_pulls else self._pulling.pulls(now)
            wanted: list[Command[Any]] = [step.command for step in steps]
            wanted += [command for _, command in unparks]
            wanted += [pull.command for pull in pulls]
            answers = self._store.run_many(wanted) if wanted else []
            return self._apply(steps, unparks, pulls, answers)
        finally:
            self._pulling.end_turn()

    def _hear(self) -> None:
        """Take in what other threads have said since the last tick."""
        with self.condition:
            inbox, self._inbox = self._inbox, []
            wake, self._wake = self._wake, None
            self._woken = False
        if wake is not None:
            self._pulling.rewind(wake)
        for place, (batch, results) in enumerate(inbox):
            try:
                if results is None:
                    self.in_flight.not_sent(batch)
                else:
                    self.in_flight.sent(batch, results, self.now())
            except Exception:
                with self.condition:
                    self._inbox[:0] = inbox[place + 1 :]
                raise

    def _apply(self, steps: list[Step], unparks: list[tuple[str, Any]], pulls: list[Pull], answers: list[Any]) -> float:
        failed = next((answer for answer in answers if isinstance(answer, StoreError)), None)
        told = answers[: len(steps)]
        unparked = answers[len(steps) : len(steps) + len(unparks)]
        pulled = answers[len(steps) + len(unparks) :]
        confirmed = False
        self._pulling.see_clock(pulled)  # what goes now is held against the time that Redis has just told
        for step, answer in zip(steps, told, strict=True):
            if not isinstance(answer, StoreError):
                confirmed = confirmed or step.fate in (Ack, Bury)
                self._fence(self.in_flight.told(step, answer, self.now()))
        for (name, _), answer in zip(unparks, unparked, strict=True):
            if answer is None:
                self._fence(True)
            elif not isinstance(answer, StoreError):
                self._parking.told(name, answer)
        more = False
        settled = {ticket for step in steps for ticket in step.tickets}
        for pull, answer in zip(pulls, pulled, strict=True):
            if isinstance(answer, StoreError):
                self._pulling.failed(pull)
            elif answer is None:
                self._fence(True)
            else:
                self._history.see(self.keys.number, answer.counted)
                more = self._pulling.take(pull, answer, settled) or more
                confirmed = confirmed or answer.appended > 0
        if pulled:
            errors = [answer for answer in pulled if isinstance(answer, StoreError)]
            self._progress.pulled(str(errors[0]) if len(errors) == len(pulled) else None)
        self._progress.see(confirmed=confirmed, outstanding=self.in_flight.outstanding)
        if failed is not None:
            self._tenure.incarnation.go_on()
            if not isinstance(failed, StoreUnavailable) and self._pulling.find_refusals():
                return 0
            log.warning("redis_trouble", queue=self.keys.tag, error=str(failed))
            if self._observer is not None and not isinstance(failed, StoreUnavailable):
                self._observer.failed()  # it answers, and refuses: nobody but people can mend that
            return self._trouble()
        self._troubles = 0
        if self.fenced:
            return 0 if self.in_flight.to_settle else LONGEST_WAIT
        # What was settled has made room, perhaps for some that are parked.
        return self._pulling.pause(more or bool(unparks) or (bool(steps) and self.in_flight.parked_for_targets))

    def _trouble(self) -> float:
        self._had_trouble = True
        self._troubles = min(self._troubles + 1, 5)
        return float(min(500, 25 * 2**self._troubles)) * random.uniform(0.5, 1)

    def _fence(self, fenced: bool) -> None:
        if fenced and not self.fenced:
            log.warning("fenced", queue=self.keys.tag, epoch=self.epoch)
            self.fenced = True
