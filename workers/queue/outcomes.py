"""The way back of sent messages: what becomes of them is decided, told to Redis, and taken in when it has answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.clock import Clock
from delayq.routes import Route
from delayq.store.commands import Now, Retention
from delayq.targets import Result
from workers.queue.policy import Policy
from workers.queue.settlement import Step
from workers.queue.sort import Dispatch
from workers.queue.tenure import Tenure
from workers.sending.message import InFlightMessage, Stage
from workers.sending.observer import Observer

__all__ = ["Settling"]


class Settling:
    """Settles the messages of one queue under one epoch. `now` is always Unix ms by the clock that pulls go by."""

    def __init__(
        self, tenure: Tenure, dispatch: Dispatch, *, clock: Clock, policy: Policy, retention: Retention,
        observer: Observer | None,
    ) -> None:  # fmt: skip
        self._tenure = tenure
        self._dispatch = dispatch
        self._clock = clock
        self._policy = policy
        self._retention = retention
        self._observer = observer

    # -- what the target answered ----------------------------------------------------------------------------------

    def judge(self, batch: Sequence[InFlightMessage], results: Sequence[Result], now: int) -> None:
        """Decide what becomes of a batch that was sent."""
        work = self._dispatch
        route = batch[0].route
        assert route is not None
        aside = f"t:{route.name}"
        broken = work.probing(aside)
        certain = work.at_fault(route.name)
        settlement, flight = work.settlement, work.flight.held
        for held, result in zip(batch, results, strict=True):
            if flight.get(held.ticket) is not held:
                continue
            if result.outcome == "ok":
                settlement.ack(held)
            elif result.outcome == "rejected":
                settlement.bury(held, result.reason)
            elif broken or held.probe or result.outcome == "full":
                work.probe_failed(route.name)
                if certain or result.outcome != "unknown":
                    work.park_lane(held, aside)
                else:  # it may have arrived, and may be at fault itself: its attempts are counted
                    self._failed(held, route, result, now)
            else:
                self._failed(held, route, result, now)

    def unsent(self, batch: Sequence[InFlightMessage]) -> None:
        """A batch that was not sent after all stays in the queue: whoever owns that pulls it anew."""
        for held in batch:
            if self._dispatch.flight.holds(held):
                self._dispatch.drop_lane(held)

    def _failed(self, held: InFlightMessage, route: Route, result: Result, now: int) -> None:
        settlement = self._dispatch.settlement
        made = held.attempts + 1
        most = held.record.max_attempts or route.max_attempts or self._policy.max_attempts
        if made >= most:
            settlement.bury(held, f"gave up after {made} attempts: {result.reason}")
        elif held.expired(now):
            settlement.bury(held, "expired")
        else:
            # With an ordering key the due stays, so that nothing of the key overtakes it.
            held.after = result.after
            next_due = None if held.record.keyed else now + self._pause(held, made)
            settlement.retry(held, next_due)

    def _pause(self, held: InFlightMessage, failed: int) -> int:
        return max(self._policy.backoff.delay(failed), held.after)

    def forget_unsent(self, *, fenced: bool) -> None:
        """Stopping: what is not being sent stays in the queue for the next owner; what was confirmed is acked."""
        if fenced:
            self._dispatch.settlement.keep_acks_only()
        self._dispatch.forget_waiting()

    # -- what Redis is told, and what it answered ------------------------------------------------------------------

    def steps(self, now: Now) -> list[Step]:
        """What Redis is to be told now."""
        return list(self._dispatch.settlement.steps(self._tenure.keys, self._tenure.name, now, self._retention))

    def told(self, step: Step, answer: Any, now: int) -> bool:
        """Let go of what Redis has answered for; True if it says that this epoch is over."""
        work = self._dispatch
        work.settlement.told(step)
        if step.kind == "ack":
            fenced = not answer[0]
            for held in step.items:
                work.flight.settled(held)
                if not fenced and held.record.keyed:
                    work.leave_lane(held, now)
            if self._observer is not None:
                self._observer.acked(step.items, now)
            return fenced
        if answer is None:
            return True
        if step.kind == "park":
            work.told_of_set(step.name, answer)
            for held in step.items:
                work.flight.settled(held)
        else:
            for item, status in zip(step.items, answer, strict=True):
                self._told_one(step.kind, item[0], status, now)
                if step.kind == "retry" and item[1] is not None:
                    # It lies behind the offset, unless the clock was set back since it was pulled.
                    work.flight.offset.rewind(item[1])
        return False

    def _told_one(self, kind: str, held: Any, status: str, now: int) -> None:
        if not isinstance(held, InFlightMessage):
            return  # a corrupt one was never held
        work = self._dispatch
        if status == "changed":
            work.drop_lane(held)  # somebody else touched it: look again
        elif kind == "retry" and status == "ok" and held.record.keyed:
            held.stage = Stage.BACKING_OFF
            held.attempts += 1
            held.again_at = self._clock.monotonic() + self._pause(held, held.attempts)
        else:
            work.flight.settled(held)
            work.leave_lane(held, now)
