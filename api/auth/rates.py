"""Rates: the requests of a key, and failed attempts."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


class Bucket:
    """A token bucket: `rate` tokens per second, at most `burst` at once.

    A caller that finds a token may take more than the bucket has. The next caller waits until the debt is paid. A batch
    that is larger than the bucket is therefore late, not impossible.
    """

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: int) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def wait(self, now: int) -> int:
        """Return the number of seconds, rounded up, until there is a token; 0 if there is one."""
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate / 1_000)
            self._at = now
        return 0 if self._tokens >= 1 else max(1, math.ceil((1 - self._tokens) / self.rate))

    def take(self, count: int) -> None:
        """Take tokens, even more than there are."""
        self._tokens -= count

    def like(self, rate: float, burst: float) -> bool:
        """Return whether the bucket has this rate and this burst."""
        return self.rate == rate and self.burst == burst


@dataclass(slots=True)
class _Failures:
    since: int
    count: int = 0
    until: int = 0


class Attempts:
    """Failed attempts by address and id of the key. Too many in a period lock out that pair.

    The right key with the same id is locked out at that address too. The same key elsewhere, and other keys at that
    address, still work, so nobody can lock out all callers behind one proxy. The number of remembered pairs is bounded;
    the oldest is forgotten.
    """

    #: FAILURES failures within WITHIN ms lock out for about LOCKED ms (between half and one and a half times).
    MOST: Final = 10
    WITHIN: Final = 60_000
    LOCKED: Final = 30_000
    REMEMBERED: Final = 10_000

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        #: The end of the last lock, in monotonic ms. Until then, even right keys must be checked.
        self.locks_until = 0

    def __len__(self) -> int:
        return len(self._failures)

    def locked(self, who: tuple[str, str], now: int) -> int:
        """Return for how many more seconds, rounded up, the pair is locked out; 0 if it is not."""
        if not self._failures:
            return 0
        one = self._failures.get(who)
        return 0 if one is None or now >= one.until else math.ceil((one.until - now) / 1_000)

    def failed(self, who: tuple[str, str], now: int) -> bool:
        """Record a failure, and return whether it locks the pair out."""
        one = self._failures.get(who)
        if one is None or now - one.since >= self.WITHIN:
            one = self._failures[who] = _Failures(now)
        self._failures.move_to_end(who)
        if len(self._failures) > self.REMEMBERED:
            self._failures.popitem(last=False)
        one.count += 1
        if one.count < self.MOST:
            return False
        one.until = now + round(self.LOCKED * (0.5 + self._draw()))
        one.count, one.since = 0, now
        self.locks_until = max(self.locks_until, one.until)
        return True
