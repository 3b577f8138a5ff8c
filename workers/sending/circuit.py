"""A target's circuit: after several failed sends in a row nothing is sent but a few probes, until one succeeds.

Failures of very few messages leave open whether they are at fault or the target; so a few others may try at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import islice

import msgspec

from delayq.clock import Clock

__all__ = ["PROBES", "Circuit", "Failed", "Opened"]

FAILURES = 3
PROBES = 3
SUSPECTS = 3  # different messages that have to fail, before it can only be the target
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
    """Closed: all goes. Open: a permit for PROBES messages is given out now and then. Safe for threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._probe_at: int | None = None  # monotonic ms of the next permit; None = closed
        self._probing = False  # a permit was given, and no send has ended since
        self._suspects: set[str] = set()  # ids that have failed, or were let in to try, since a send succeeded
        self._told = False  # the target asked for a pause, or is full: so it is the target
        self._opened_at = 0
        self._failed: Failed | None = None

    @property
    def open(self) -> bool:
        """Whether the target is held for broken."""
        return self._probe_at is not None

    @property
    def opened(self) -> Opened | None:
        """What there is to know of it while it is open."""
        with self._lock:
            reason = self._failed.reason if self._failed is not None else ""
            return None if self._probe_at is None else Opened(self._opened_at, self._probe_at, reason)

    @property
    def failed(self) -> Failed | None:
        """The last send that failed, also when others have succeeded since."""
        return self._failed

    def sent(self, ok: bool, after: int = 0, ids: Iterable[str] = (), full: bool = False, reason: str = "") -> bool:
        """Count a send of these messages; True if that opened or closed the circuit.

        A failed one asked for a pause of `after` ms, with this `reason`. One that found the target `full` opens it at
        once.
        """
        with self._lock:
            was_open = self._probe_at is not None
            if ok:
                self._failures, self._pause, self._probe_at, self._probing = 0, FIRST_PAUSE, None, False
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

    def permit(self) -> int:
        """How many probes the caller may send now; a permit is not given again before the next pause is over."""
        with self._lock:
            if self._probe_at is None or self._clock.monotonic() < self._probe_at:
                return 0
            self._probe_at = self._clock.monotonic() + self._pause
            self._probing = True
            return PROBES

    @property
    def certain(self) -> bool:
        """Whether what failed can only be the target's fault: it said so, or several different messages failed."""
        with self._lock:
            return self._certain()

    def _certain(self) -> bool:
        return self._told or len(self._suspects) >= SUSPECTS

    def may_try(self, id: str) -> bool:
        """Whether this message may be sent although the circuit is open; it counts as one that was tried then."""
        with self._lock:
            if self._probe_at is None or self._certain() or id in self._suspects:
                return False
            self._suspects.add(id)
            return True
