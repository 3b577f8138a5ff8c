"""How much of something there may be in a while: requests of a key, and attempts that fail."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Attempts", "Bucket"]


class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst` of them at once.

    Whoever finds a token may take more than there are: the next one waits until the debt is paid. So a batch larger
    than the bucket is late, not impossible.
    """

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: int) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def wait(self, now: int) -> int:
        """Whole seconds until there is a token; 0 if there is one."""
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate / 1_000)
            self._at = now
        return 0 if self._tokens >= 1 else max(1, math.ceil((1 - self._tokens) / self.rate))

    def take(self, count: int) -> None:
        """Take tokens, also more than there are."""
        self._tokens -= count

    def like(self, rate: float, burst: float) -> bool:
        """Whether it has this rate and this burst."""
        return self.rate == rate and self.burst == burst


@dataclass(slots=True)
class _Failures:
    since: int
    count: int = 0
    until: int = 0


class Attempts:
    """Attempts with a wrong key, by address and id of the key: too many in a while, and that pair is locked out.

    A right key with the same id is locked out, too, at that address; the same key elsewhere, and other keys there, are
    not: nobody can lock out all who come through one proxy. What is remembered is bounded; the oldest is forgotten.
    """

    #: So many failures within so many ms lock out for LOCKED ms, give or take a half.
    MOST: Final = 10
    WITHIN: Final = 60_000
    LOCKED: Final = 30_000
    REMEMBERED: Final = 10_000

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        #: When the last lock ends, monotonic ms; until then a right key has to be looked at, too.
        self.locks_until = 0

    def __len__(self) -> int:
        return len(self._failures)

    def locked(self, who: tuple[str, str], now: int) -> int:
        """For how many whole seconds more; 0 if not."""
        if not self._failures:
            return 0
        one = self._failures.get(who)
        return 0 if one is None or now >= one.until else math.ceil((one.until - now) / 1_000)

    def failed(self, who: tuple[str, str], now: int) -> bool:
        """Remember a failure; whether it locks out from now on."""
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
