"""The circuit of a target. After several failed sends in a row, only a few probes are sent until one succeeds.

If only a few different messages have failed, either they or the target may be at fault. So a few others are sent at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import islice

import msgspec

from delayq.base.clock import Clock
from workers.sending.message import InFlightMessage, Probe

#: Failed sends in a row that open the circuit, and different messages that must fail before the target counts as at fault.
FAILURES = 3
PROBES = 3
FIRST_PAUSE = 1_000
LONGEST_PAUSE = 30_000


class Opened(msgspec.Struct, frozen=True):
    """An open circuit: since when the target accepts nothing, the time of the next probes, and the target's last answer.

    Times are monotonic ms. A circuit that was closed by rejected messages alone, and opened again, has its first start.
    """

    since: int
    probe_at: int
    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The last failed send: its time (monotonic ms), and the target's answer."""

    at: int
    reason: str


class Circuit:
    """Closed: all messages are sent. Open: one queue gets permits for PROBES messages after each pause. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._probe_at: int | None = None  # monotonic ms of the next permit; None = closed
        self._probing = False  # permits were given, and no send has ended since then
        self._permits = 0  # given and not used
        self._holder: object = None  # the queue that has the permits
        self._suspects: set[str] = set()  # ids of messages that failed or were tried since the last successful send
        self._at_fault = False  # the target asked for a pause, or is full
        self._since: int | None = None  # monotonic ms of the first start since the target accepted a message
        self._failed: Failed | None = None

    @property
    def open(self) -> bool:
        """Whether only probes are sent."""
        return self._probe_at is not None

    @property
    def opened(self) -> Opened | None:
        """The start of the open circuit and its reason; None while it is closed."""
        with self._lock:
            reason = self._failed.reason if self._failed is not None else ""
            if self._probe_at is None or self._since is None:
                return None
            return Opened(self._since, self._probe_at, reason)

    @property
    def failed(self) -> Failed | None:
        """The last failed send, even if later ones succeeded."""
        return self._failed

    def sent(
        self,
        ok: bool,
        after: int = 0,
        ids: Iterable[str] = (),
        full: bool = False,
        reason: str = "",
        *,
        accepted: bool = True,
    ) -> bool:
        """Count a send of these messages; True if that opened or closed the circuit.

        A send is `ok` if the target has answered for a message, and `accepted` if it has not only rejected messages.

        A failed send has the target's `reason`, and `after` is the pause (ms) that the target asked for. A target that is
        `full` opens the circuit at once.
        """
        with self._lock:
            was_open = self._probe_at is not None
            if ok:
                self._failures, self._pause, self._probe_at, self._probing = 0, FIRST_PAUSE, None, False
                self._permits, self._holder = 0, None
                self._suspects.clear()
                self._at_fault = False
                if accepted:
                    self._since = None
                return was_open
            self._failures += 1
            self._at_fault = self._at_fault or full or after > 0
            if len(self._suspects) < FAILURES:
                self._suspects.update(islice(ids, FAILURES))
            now = self._clock.monotonic()
            self._failed = Failed(now, reason)
            if self._probe_at is not None:
                self._permits = 0  # the next pause has begun
                if self._probing:  # a send that began before the circuit opened does not count
                    self._probing = False
                    self._pause = min(LONGEST_PAUSE, self._pause * 2)
                    self._probe_at = now + self._pause
                self._probe_at = max(self._probe_at, now + after)
            elif full or self._failures >= FAILURES:
                self._since = now if self._since is None else self._since
                self._probe_at = now + max(self._pause, after)
                return True
            return False

    @property
    def probes_others(self) -> bool:
        """Whether probes with the earliest messages have failed, so that others are to be tried, too."""
        return self._pause > 4 * FIRST_PAUSE

    def permits(self, holder: object) -> int:
        """The number of probes that a queue may send now. After each pause, the first queue that asks gets the permits.

        The queue keeps permits that it has not used: the messages that it brought back may not be sendable.
        """
        with self._lock:
            return self._held_by(holder)

    def _held_by(self, holder: object) -> int:
        if self._probe_at is not None and (now := self._clock.monotonic()) >= self._probe_at:
            self._probe_at = now + self._pause
            self._probing = True
            self._permits, self._holder = PROBES, holder
        return self._permits if self._holder is holder else 0

    def admits(self, message: InFlightMessage, holder: object) -> Probe:
        """Return the value for the field `probe` of a message: whether it may be sent through an open circuit."""
        if message.probe or message.by_hand:
            return message.probe or Probe.FREE
        with self._lock:
            if self._held_by(holder):
                self._permits -= 1
                return Probe.PERMITTED
            return Probe.FREE if self._may_try(message.id) else Probe.NONE

    def return_permit(self) -> None:
        """Return the permit of a message that is not sent, so that another message can be the probe.

        If the permit were lost and all probes waited for something else, the circuit would stay open.
        """
        with self._lock:
            if self._probe_at is not None:
                self._permits = min(PROBES, self._permits + 1)

    @property
    def certain(self) -> bool:
        """Whether the target must be at fault: its answer shows that, or several different messages failed."""
        with self._lock:
            return self._certain()

    def _certain(self) -> bool:
        return self._at_fault or len(self._suspects) >= FAILURES

    def _may_try(self, id: str) -> bool:
        """Whether a send of this message helps to find out if the target is at fault; if so, the message counts as tried."""
        if self._probe_at is None or self._certain() or id in self._suspects:
            return False
        self._suspects.add(id)
        return True
