"""A sender into memory on a clock that the test moves, and its reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from delayq.domain.codec import encode
from delayq.domain.message import Limits, Message
from delayq.domain.routes import Route
from delayq.targets import Result
from delayq.testing import START, ManualClock, MemoryTarget
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.sending.message import InFlightMessage
from workers.sending.sender import GRACE, Sender
from workers.sending.stall_detector import StallDetector

ROUTE = Route(name="memory", target="memory:")


def held(id: str, expire_after: int | None = None) -> InFlightMessage:
    """A pulled message."""
    content = encode(Message(topic="g.t", delay_time=1, expire_after=expire_after), Limits())
    return InFlightMessage(id.encode() + b"\x000000000", START, 0, b"0000000" + b"%013d" % START + b"0" + content)


class Desk:
    """`reports` are the outcomes of each message; None where it was not sent."""

    def __init__(
        self,
        *,
        threads: int = 1,
        max_batch: int = 1,
        timeout: int = 60_000,
        clock: ManualClock | None = None,
        stalls: StallDetector | None = None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self.clock = clock or ManualClock()
        self.target = MemoryTarget(max_batch=max_batch)
        self.sender = Sender(
            ROUTE, self.target, self.clock, threads=threads, timeout=timeout, stalls=stalls, may_send=may_send
        )
        self.sender.start()
        self._timeout = timeout
        self.reports: dict[str, list[str | None]] = {}

    def submit(self, *messages: str | InFlightMessage, stalls: int = 0) -> None:
        """Have the sender send these messages as one batch."""
        batch = [held(one) if isinstance(one, str) else one for one in messages]
        self.sender.submit(self._report, batch, stalls)

    def _report(self, batch: Sequence[InFlightMessage], results: Sequence[Result] | None) -> None:
        outcomes = [None] * len(batch) if results is None else [result.outcome for result in results]
        for message, outcome in zip(batch, outcomes, strict=True):
            self.reports.setdefault(message.id, []).append(outcome)

    def wait_for_reports(self, count: int) -> dict[str, list[str | None]]:
        """The reports once so many messages have some."""
        eventually(lambda: len(self.reports) >= count, f"{count} messages are reported")
        return dict(self.reports)

    def hang(self, *ids: str) -> None:
        """Send these messages, each of which keeps a thread until the target is released."""
        before = self.target.hanging
        for id in ids:
            self.target.answer("hang", id=id)
            self.submit(id)
        self.target.wait_for_hanging(before + len(ids), PATIENCE)

    def give_up_hung(self) -> None:
        """Let the time of all sends pass."""
        self.clock.advance(self._timeout + GRACE + 1)
        self.sender.give_up_hung()

    @staticmethod
    def threads() -> int:
        """How many threads of senders there are."""
        return sum(thread.name == "sender-memory" and thread.is_alive() for thread in threading.enumerate())

    def close(self) -> None:
        """Stop, and wait for the last thread."""
        self.sender.stop()
        self.target.close()
        eventually(lambda: self.threads() == 0, "the sender's threads end")
