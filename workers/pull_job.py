"""The pull job: the one thread that pulls a queue, while this node owns it.

`tick` does what is to be done now and says when to look again; `run` only waits. Forwarders report into an inbox, so
everything that is held is touched by this thread alone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence, Set
from typing import Any

import structlog

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Command, Now, Pulled, Retention
from delayq.store.keys import QueueKeys
from delayq.store.store import Store
from delayq.targets import Result
from workers.dispatch import Dispatch, Policy
from workers.flood import LATE, Flood
from workers.held import Held
from workers.in_flight import Cursor
from workers.observer import Observer
from workers.settlement import Step
from workers.topics import Topics
from workers.unparking import Unparking

__all__ = ["PullJob"]

LONGEST_WAIT = 1_000
APPEND_LOOK = 50
TURN_WAIT = 0.008
RESCAN = 1_000
log = structlog.get_logger()


class PullJob:
    """Pulls one queue under one epoch. `test_now` hands the scripts a time; None means the clock of Redis."""

    def __init__(
        self, keys: QueueKeys, epoch: str, parked: Sequence[str], *, store: Store, topics: Topics,
        dispatch: Callable[[Callable[[Sequence[Held], Sequence[Result]], None]], Dispatch], clock: Clock, policy: Policy,
        retention: Retention, turns: threading.Semaphore | None = None, observer: Observer | None = None,
        test_now: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.epoch = epoch
        self.fenced = False
        self.ticked_at = clock.monotonic()
        self.dispatch = dispatch(self.report)
        self._store = store
        self._topics = topics
        self._clock = clock
        self._policy = policy
        self._retention = retention
        self._turns = turns
        self._observer = observer
        self._test_now = test_now
        self.condition = threading.Condition()
        self._inbox: list[tuple[Sequence[Held], Sequence[Result]]] = []
        self._wake: int | None = None
        self._woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._flood = Flood()
        # Appending a message weighs more on the server than handing it out; short scripts let others in between.
        self._look = min(policy.look, APPEND_LOOK) if topics.local else policy.look
        self._rescan_at = 0
        self._troubles = 0
        self._turn_taken = False
        self._now_offset: int | None = None  # Redis's now minus the monotonic clock
        self._next_due: tuple[int, int] | None = None  # due, and the µs by which now was past its ms
        self._unparking = Unparking(keys, epoch, parked, self.dispatch)

    # -- from other threads ----------------------------------------------------------------------------------------

    def report(self, batch: Sequence[Held], results: Sequence[Result]) -> None:
        """A forwarder says what became of a batch."""
        with self.condition:
            self._inbox.append((batch, results))
            self._woken = True
            self.condition.notify()

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

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tick and wait until stopped or fenced, whatever goes wrong."""
        while not self.finished:
            try:
                pause = self.tick()
            except Exception:
                log.exception("tick_failed", queue=self.keys.tag)
                self.dispatch.reset()
                pause = self._trouble()
            self.ticked_at = self._clock.monotonic()
            if pause > 0:
                with self.condition:
                    if not self._woken or self._troubles:
                        self._clock.wait(self.condition, pause)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do: stopped or fenced, and all that was sent is settled."""
        if not (self._stopping or self.fenced):
            return False
        return not any(self.dispatch.submitted.values()) and not self._inbox and not self.dispatch.settlement

    def tick(self) -> float:
        """Settle, pull and send what there is; the ms until it is to be called again (0 = at once)."""
        work = self.dispatch
        ending = self._stopping or self.fenced
        with self.condition:
            inbox, self._inbox = self._inbox, []
            wake, self._wake = self._wake, None
            self._woken = False
        if wake is not None:
            work.flight.offset.rewind(wake)
            self._flood.fresh.rewind(wake)
        for place, (batch, results) in enumerate(inbox):
            work.returned(batch)
            try:
                work.judge(batch, results, self.now())
            except Exception:
                for held in batch:
                    held.sending = False  # so that it is pulled anew
                with self.condition:
                    self._inbox[:0] = inbox[place + 1 :]
                raise
        if ending:
            self._forget_unsent()
        else:
            self._pull_failed_anew()
            work.flow()
        steps = list(work.settlement.steps(self.keys, self.epoch, self._script_now(), self._retention))
        unparks = [] if ending else self._unparking.commands()
        self._turn_taken = False
        try:
            pulls = [] if ending else self._pulls()
            wanted: list[Command[Any]] = [step.command for step in steps]
            wanted += [command for _, command in unparks]
            wanted += [command for _, _, command in pulls]
            answers = self._store.run_many(wanted)
        finally:
            if self._turn_taken and self._turns is not None:
                self._turns.release()
        return self._apply(steps, unparks, pulls, answers)

    def _apply(
        self, steps: list[Step], unparks: list[tuple[str, Any]], pulls: list[tuple[Cursor, bool, Any]],
        answers: list[Any],
    ) -> float:  # fmt: skip
        failed = next((answer for answer in answers if isinstance(answer, StoreError)), None)
        told = answers[: len(steps)]
        for step, answer in zip(steps, told, strict=True):
            if not isinstance(answer, StoreError):
                self._told(step, answer)
        rest = answers[len(steps) :]
        for (name, _), answer in zip(unparks, rest, strict=False):
            if answer is None:
                self._fence(True)
            elif not isinstance(answer, StoreError):
                self._unparking.take(name, answer)
        more = False
        told_of = {(item[0] if isinstance(item, tuple) else item).ticket for step in steps for item in step.items}
        for (cursor, fresh, _), answer in zip(pulls, rest[len(unparks) :], strict=True):
            if isinstance(answer, StoreError):
                cursor.unread = True
            else:
                more = self._pulled(cursor, fresh, answer, told_of=told_of) or more
        if failed is not None:
            log.warning("redis_trouble", queue=self.keys.tag, error=str(failed))
            return self._trouble()
        self._troubles = 0
        if self.fenced:
            return 0 if self.dispatch.settlement else LONGEST_WAIT
        # What was settled has made room, perhaps for some that are parked.
        return self._pause(more or bool(unparks) or (bool(steps) and self.dispatch.any_parked))

    def _trouble(self) -> float:
        self._troubles = min(self._troubles + 1, 5)
        return float(min(500, 25 * 2**self._troubles)) * random.uniform(0.5, 1)

    # -- settling --------------------------------------------------------------------------------------------------

    def _told(self, step: Step, answer: Any) -> None:
        work = self.dispatch
        work.settlement.told(step)
        if step.kind == "ack":
            fenced = not answer[0]
            for held in step.items:
                work.flight.settled(held)
                if not fenced and held.record.keyed:
                    work.leave_lane(held, self.now())
            self._fence(fenced)
            if self._observer is not None:
                self._observer.acked(step.items, self.now())
        elif answer is None:
            self._fence(True)
        elif step.kind == "park":
            work.parked[step.name] = answer[0]
            for held in step.items:
                work.flight.settled(held)
        else:
            for item, status in zip(step.items, answer, strict=True):
                self._told_one(step.kind, item, status)

    def _told_one(self, kind: str, item: Any, status: str) -> None:
        work = self.dispatch
        held = item[0]
        if not isinstance(held, Held):
            return
        if status == "changed":
            work.drop_lane(held)  # somebody else touched it: look again
        elif kind == "retry" and status == "ok" and held.record.keyed:
            held.attempts += 1
            held.again_at = self._clock.monotonic() + self._policy.backoff.delay(held.attempts)
        else:
            work.flight.settled(held)
            work.leave_lane(held, self.now())

    def _fence(self, fenced: bool) -> None:
        if fenced and not self.fenced:
            log.warning("fenced", queue=self.keys.tag, epoch=self.epoch)
            self.fenced = True

    def _forget_unsent(self) -> None:
        """Stopping: what is not being sent stays in the queue for the next owner; what was confirmed is acked."""
        work = self.dispatch
        if self.fenced:
            work.settlement.retries.clear()
            work.settlement.burials.clear()
            work.settlement.parkings.clear()
        for name, batch in work.waiting.items():
            assert name in work.submitted
            for held in batch:
                held.sending = False
        work.waiting.clear()

    # -- pulling ---------------------------------------------------------------------------------------------------

    def _pull_failed_anew(self) -> None:
        now = self._clock.monotonic()
        for held in self.dispatch.lanes.waiting():
            if held.again_at is not None and held.again_at <= now:
                self.dispatch.drop_lane(held)

    def _pulls(self) -> list[tuple[Cursor, bool, Command[Pulled | None]]]:
        """The backlog, and in a flood the fresh messages beside it."""
        work = self.dispatch
        if self._unparking.before_pulls:
            return []
        backlog = not work.waiting
        if not backlog:
            self._flood.backlog_waits(self.now())
        if self._flood.on and backlog and self._turns is not None:
            # Few pulls of backlogs at a time in the whole node, so that no fresh message waits behind sixteen.
            backlog = self._turn_taken = self._turns.acquire(timeout=TURN_WAIT)
        pulls = []
        if backlog:
            pulls.append((work.flight.offset, False, self._pull(work.flight.offset, False)))
        if self._flood.fresh_is_due(self._clock.monotonic()):
            pulls.append((self._flood.fresh, True, self._pull(self._flood.fresh, True)))
        return pulls

    def _pull(self, cursor: Cursor, fresh: bool) -> Command[Pulled | None]:
        flight, policy = self.dispatch.flight, self._policy
        room = min(self._look, policy.window - len(flight))
        if flight.bytes >= policy.window_bytes:
            room = 0
        cursor.unread = False
        return commands.pull(
            self.keys, self.epoch, offset=cursor.due, behind=cursor.ticket,
            held=b"" if fresh else flight.last_held(), room=max(0, room), look=self._look, fresh=fresh,
            known=self._topics.known(), unlisted_general=self._topics.unlisted_general,
            node_now=self._clock.now(), now=self._script_now(), retention=self._retention,
        )  # fmt: skip

    def _pulled(self, cursor: Cursor, fresh: bool, pulled: Pulled | None, *, told_of: Set[bytes]) -> bool:
        """Take what came; True if it is worth pulling again at once.

        A server that had lost its scripts may have pulled before it settled what it was `told_of`: that stays out.
        """
        if pulled is None:
            self._fence(True)
            return False
        self._now_offset = pulled.now - self._clock.monotonic()
        cursor.advance(pulled)
        if pulled.unknown_topics:
            self._topics.learn(pulled.unknown_topics)
        if self._observer is not None and (pulled.appended or pulled.tickets):
            self._observer.pulled(pulled)
        # A pull that began behind what came back meanwhile may have passed over the elders of a key: it looks again.
        self.dispatch.take(pulled, pulled.now, keyed=not cursor.unread, settled=told_of)
        if fresh:
            self._flood.see_fresh(pulled)
        else:
            self._look_for_missed(pulled)
            self._next_due = None if pulled.next_due is None else (pulled.next_due, pulled.micro)
            self._flood.see_backlog(pulled)
        # One that found no room is worth it if something was settled since the room was reckoned.
        return pulled.more and (pulled.last is not None or bool(pulled.unknown_topics) or bool(told_of))

    def _look_for_missed(self, pulled: Pulled) -> None:
        now = self._clock.monotonic()
        if now >= self._rescan_at:
            self._rescan_at = now + RESCAN
            work = self.dispatch
            if pulled.start and work.flight.missed(pulled.start):
                work.flight.offset.rewind(0)
            work.keys_to_unpark.update(
                name for name in work.parked if name.startswith("k:") and work.lanes.low(name[2:])
            )

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _pause(self, more: bool) -> float:
        work = self.dispatch
        # A rewound offset has something unread behind it; in a flood this turn may have been another queue's.
        if more or self._flood.on or work.settlement or work.flight.offset.unread:
            return 0 if not work.waiting else 1
        longest = LONGEST_WAIT * random.uniform(0.9, 1)
        if work.waiting:
            longest = LATE
        now = self._clock.monotonic()
        for held in work.lanes.waiting():
            assert held.again_at is not None
            longest = min(longest, max(1, held.again_at - now))
        if self._next_due is not None:
            due, micro = self._next_due
            longest = min(longest, due - self.now() - micro / 1000)
        return max(0, longest)

    def now(self) -> int:
        """Unix ms by the clock that the last pull went by."""
        if self._now_offset is None:
            return self._clock.now()
        return self._clock.monotonic() + self._now_offset

    def _script_now(self) -> Now:
        return self._test_now() if self._test_now is not None else ""
