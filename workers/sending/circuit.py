"""The circuit of a target: after several failed sends in a row only a few probes are sent, until one succeeds.

If very few different messages have failed, either they or the target may be at fault. So a few others are tried at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import islice

import msgspec

from delayq.clock import Clock
from workers.sending.message import InFlightMessage, Probe

__all__ = ["PROBES", "Circuit", "Failed", "Opened"]

FAILURES = 3
PROBES = 3
SUSPECTS = 3  # different messages that have to fail before the target must be at fault
FIRST_PAUSE = 1_000
LONGEST_PAUSE = 30_000


class Opened(msgspec.Struct, frozen=True):
    """An open circuit: since when, when the next probes may go (both monotonic ms), and what the target said last."""

    since: int
    probe_at: int
    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The last send that failed: when (monotonic ms), and what the target said."""

    at: int
    reason: str


class Circuit:
    """Closed: all messages are sent. Open: one queue gets permits for PROBES messages after each pause. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._probe_at: int | None = None  # monotonic ms of the next permit; None = closed
        self._probing = False  # permits were given, and no send has ended since
        self._permits = 0  # that were given and not used
        self._holder: object = None  # the queue that has them
        self._suspects: set[str] = set()  # ids of messages that have failed or were tried since a send succeeded
        self._told = False  # the target asked for a pause, or is full: so it is at fault
        self._opened_at = 0
        self._failed: Failed | None = None

    @property
    def open(self) -> bool:
        """Whether only probes are sent."""
        return self._probe_at is not None

    @property
    def opened(self) -> Opened | None:
        """Since when it is open, and why; None while it is closed."""
        with self._lock:
            reason = self._failed.reason if self._failed is not None else ""
            return None if self._probe_at is None else Opened(self._opened_at, self._probe_at, reason)

    @property
    def failed(self) -> Failed | None:
        """The last send that failed, also when others have succeeded since."""
        return self._failed

    def sent(self, ok: bool, after: int = 0, ids: Iterable[str] = (), full: bool = False, reason: str = "") -> bool:
        """Count a send of these messages; True if that opened or closed the circuit.

        The target answered a failed one with this `reason`, and asked for a pause of `after` ms. If it is `full`, that opens the
        circuit at once.
        """
        with self._lock:
            was_open = self._probe_at is not None
            if ok:
                self._failures, self._pause, self._probe_at, self._probing = 0, FIRST_PAUSE, None, False
                self._permits, self._holder = 0, None
                self._suspects.clear()
                self._told = False
                return was_open
            self._failures += 1
            self._told = self._told or full or after > 0
            if len(self._suspects) < SUSPECTS:
                self._suspects.update(islice(ids, SUSPECTS))
            now = self._clock.monotonic()
            self._failed = Failed(now, reason)
            if self._probe_at is not None:
                self._permits = 0  # the next pause has begun
                if self._probing:  # not one that was on its way when the circuit opened
                    self._probing = False
                    self._pause = min(LONGEST_PAUSE, self._pause * 2)
                    self._probe_at = now + self._pause
                self._probe_at = max(self._probe_at, now + after)
            elif full or self._failures >= FAILURES:
                self._opened_at = now
                self._probe_at = now + max(self._pause, after)
                return True
            return False

    def permits(self, holder: object) -> int:
        """How many probes a queue may send now. Whenever the pause is over, the first queue that asks holds the next permits.

        A permit that was not used stays its holder's: it may have brought back messages that cannot be sent.
        """
        with self._lock:
            return self._held_by(holder)

    def _held_by(self, holder: object) -> int:
        if self._probe_at is not None and (now := self._clock.monotonic()) >= self._probe_at:
            self._probe_at = now + self._pause
            self._probing = True
            self._permits, self._holder = PROBES, holder
        return self._permits if self._holder is holder else 0

    def take_permit(self, holder: object) -> bool:
        """Use one of a queue's permits, if it has any."""
        with self._lock:
            return self._take_permit(holder)

    def _take_permit(self, holder: object) -> bool:
        if not self._held_by(holder):
            return False
        self._permits -= 1
        return True

    def admits(self, message: InFlightMessage, holder: object) -> Probe:
        """Whether a message may be sent as a probe, in spite of an open circuit: the value of its field `probe`."""
        if message.probe or message.by_hand:
            return message.probe or Probe.FREE
        with self._lock:
            if self._take_permit(holder):
                return Probe.PERMITTED
            return Probe.FREE if self._may_try(message.id) else Probe.NONE

    def return_permit(self) -> None:
        """Let another message be the probe, as one that had a permit is not sent after all.

        Else nobody would find out that the target is well again, where each probe has to wait for something else.
        """
        with self._lock:
            if self._probe_at is not None:
                self._permits = min(PROBES, self._permits + 1)

    @property
    def certain(self) -> bool:
        """Whether the target must be at fault: it said so, or several different messages failed."""
        with self._lock:
            return self._certain()

    def _certain(self) -> bool:
        return self._told or len(self._suspects) >= SUSPECTS

    def _may_try(self, id: str) -> bool:
        """Whether this message helps to find out whether the target is at fault; it counts as one that was tried then."""
        if self._probe_at is None or self._certain() or id in self._suspects:
            return False
        self._suspects.add(id)
        return True
