"""A target in memory with answers that a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import msgspec

from delayq.base.clock import Clock, SystemClock
from delayq.targets import OK, Delivery, Result

__all__ = ["Delivered", "MemoryTarget"]


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it arrived; `at` is the time, Unix ms."""

    id: str
    topic: str
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    ordering_key: str
    payload: bytes
    due: int
    attempt: int
    at: int

    @staticmethod
    def of(one: Delivery, at: int) -> Delivered:
        """The messages of a target, kept for a test."""
        return Delivered(
            id=one.id,
            topic=one.topic,
            tags=one.tags,
            keys=one.keys,
            properties=dict(one.properties),
            ordering_key=one.ordering_key,
            payload=one.payload,
            due=one.due,
            attempt=one.attempt,
            at=at,
        )


class _Rule(msgspec.Struct):
    """How messages are answered; `times` counts down, None has no end."""

    result: Result | None  # None: the send hangs
    id: str | None
    topic: str | None
    times: int | None
    arrives: bool

    def takes(self, one: Delivery) -> bool:
        if self.times == 0:
            return False
        return (self.id is None or self.id == one.id) and (self.topic is None or self.topic == one.topic)


class MemoryTarget:
    """A target that keeps its messages, and answers as configured. Safe for threads.

    `latency` (ms) is the duration of every send, by `clock`.
    """

    def __init__(self, *, max_batch: int = 500, latency: int = 0, clock: Clock | None = None) -> None:
        self.max_batch = max_batch
        self.latency = latency
        self.closed = False
        self._clock = clock if clock is not None else SystemClock()
        self._condition = threading.Condition()
        self._deliveries: list[Delivered] = []
        self._attempted: list[Delivered] = []
        self._batches: list[int] = []
        self._rules: list[_Rule] = []
        self._hanging = 0
        self._releases = 0

    # -- the rules of a test -------------------------------------------------------------------------------------------

    def answer(
        self,
        outcome: str,
        *,
        id: str | None = None,
        topic: str | None = None,
        times: int | None = None,
        reason: str = "",
        arrives: bool = False,
    ) -> None:
        """Answer messages (of this id, of this topic) with this outcome from now on, at most `times` times.

        `outcome` is 'ok', 'rejected', 'unavailable', 'full', 'unknown', or 'hang': a send with such a message blocks until
        `release`, then goes on by the other rules. An 'unknown' one `arrives` or not. The latest rule counts.
        """
        if outcome not in ("ok", "rejected", "unavailable", "full", "unknown", "hang"):
            raise ValueError(f"unknown outcome {outcome!r}")
        result = None if outcome == "hang" else OK if outcome == "ok" else Result(outcome, reason or f"told: {outcome}")
        with self._condition:
            self._rules.append(_Rule(result, id, topic, times, arrives or outcome == "ok"))

    def behave(self) -> None:
        """Forget all rules of `answer`, and release hanging sends: everything is 'ok' again."""
        with self._condition:
            self._rules.clear()
        self.release()

    def release(self) -> None:
        """Release the sends that hang now."""
        with self._condition:
            self._releases += 1
            self._condition.notify_all()

    # -- what a test looks at ------------------------------------------------------------------------------------------

    @property
    def deliveries(self) -> list[Delivered]:
        """The messages that arrived, in order."""
        with self._condition:
            return list(self._deliveries)

    @property
    def ids(self) -> list[str]:
        """The ids of the messages that arrived, in order."""
        return [one.id for one in self.deliveries]

    @property
    def attempted(self) -> list[Delivered]:
        """All messages that were sent here, arrived or not, in the order in which their sends began."""
        with self._condition:
            return list(self._attempted)

    @property
    def batches(self) -> list[int]:
        """The sizes of the batches, in the order of the sends' beginnings."""
        with self._condition:
            return list(self._batches)

    @property
    def hanging(self) -> int:
        """The number of sends that hang now."""
        with self._condition:
            return self._hanging

    def wait_for(self, count: int, timeout: float = 30.0) -> list[Delivered]:
        """Wait until this many messages arrived, and return all of them. Raises TimeoutError."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._deliveries) >= count, timeout):
                raise TimeoutError(f"{len(self._deliveries)} of {count} messages arrived within {timeout} s")
            return list(self._deliveries)

    def wait_for_ids(self, ids: Iterable[str], timeout: float = 30.0) -> None:
        """Wait until all these messages arrived. Raises TimeoutError."""
        missing = set(ids)

        def arrived() -> bool:
            missing.difference_update(one.id for one in self._deliveries)
            return not missing

        with self._condition:
            if not self._condition.wait_for(arrived, timeout):
                raise TimeoutError(f"{len(missing)} messages did not arrive within {timeout} s: {sorted(missing)[:5]}")

    def wait_for_attempts(self, count: int, timeout: float = 30.0) -> list[Delivered]:
        """Wait until this many messages were sent here, arrived or not. Raises TimeoutError."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._attempted) >= count, timeout):
                raise TimeoutError(f"{len(self._attempted)} of {count} messages were sent within {timeout} s")
            return list(self._attempted)

    def wait_for_hanging(self, count: int = 1, timeout: float = 30.0) -> None:
        """Wait until this many sends hang. Raises TimeoutError."""
        with self._condition:
            if not self._condition.wait_for(lambda: self._hanging >= count, timeout):
                raise TimeoutError(f"{self._hanging} of {count} sends hang after {timeout} s")

    # -- the target ----------------------------------------------------------------------------------------------------

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Take a batch, and answer by the rules."""
        with self._condition:
            self._batches.append(len(batch))
            self._attempted += [self._delivered(one) for one in batch]
            self._condition.notify_all()
            while (rule := self._hangs(batch)) is not None:
                self._hang(rule)
        if self.latency:
            self._pause()
        with self._condition:
            results = [self._take(one) for one in batch]
            self._condition.notify_all()
        return results

    def close(self) -> None:
        """Release hanging sends."""
        self.closed = True
        self.behave()

    def _hangs(self, batch: Sequence[Delivery]) -> _Rule | None:
        for one in batch:
            rule = self._rule_for(one)
            if rule is not None and rule.result is None:
                return rule
        return None

    def _hang(self, rule: _Rule) -> None:
        if rule.times is not None:
            rule.times -= 1
        upto = self._releases
        self._hanging += 1
        self._condition.notify_all()
        self._condition.wait_for(lambda: self._releases > upto)
        self._hanging -= 1
        if rule.times is None and rule in self._rules:
            self._rules.remove(rule)

    def _pause(self) -> None:
        end = self._clock.monotonic() + self.latency
        condition = threading.Condition()
        with condition:
            while not self.closed and (left := end - self._clock.monotonic()) > 0:
                self._clock.wait(condition, left)

    def _take(self, one: Delivery) -> Result:
        rule = self._rule_for(one)
        if rule is None or rule.result is None:
            self._deliveries.append(self._delivered(one))
            return OK
        if rule.times is not None:
            rule.times -= 1
        if rule.arrives:
            self._deliveries.append(self._delivered(one))
        return rule.result

    def _rule_for(self, one: Delivery) -> _Rule | None:
        return next((rule for rule in reversed(self._rules) if rule.takes(one)), None)

    def _delivered(self, one: Delivery) -> Delivered:
        return Delivered.of(one, self._clock.now())
