"""A limit on the rate: permits of a bucket in Redis, each valid for a short while.

A permit that is not used in time is lost: nothing is given back to the bucket, as a lost reply would give it back twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.policies import Bucket
from delayq.store.commands import Granted, Now, Spending
from delayq.store.keys import rate_key
from workers.limits.limit import IDLE, Limit, Listener

__all__ = ["Permits", "RateLimit", "life_and_burst"]

#: Permits that are valid until such a time (monotonic ms), and how many.
Permits = Sequence[tuple[int, int]]
#: ms for which a permit is valid at most, and at least. What may be used so late is taken off the burst.
LIFE: Final = 400
SHORTEST_LIFE: Final = 100
#: At most this part of the burst is valid at a time, and may be used at once. A burst counts as at least so much that this is
#: what the rate makes in the shortest life: the bucket would run over between two requests.
VALID: Final = 2 / 3
#: ms between two requests, at least; and the longest to a bucket that is short.
QUICKEST: Final = 10
LONGEST_WAIT: Final = 1_000
#: Part of the time that a permit takes to come, for which a node that had one just now asks later than one that had none.
YIELD: Final = 0.1
#: ms for which a bucket that had less than was wanted is asked only for what is needed. Else permits are kept ready: as many as
#: twice the sends that begin in LATELY, and this part of what the rate makes while a permit is valid.
SHORT: Final = 2_000
READY: Final = 1 / 8
#: A node asks for no more than it can use while it is valid, by what it used lately, and so many.
MORE: Final = 500
#: A pull takes permits that last so many ms, as it has a trip to make; and no more than this part of what nobody waits for, as
#: all queues pull at the same moment.
TRIP: Final = 20
PART: Final = 4


def life_and_burst(bucket: Bucket) -> tuple[int, float]:
    """For how many ms its permits are valid, and how many messages the bucket holds in Redis: less than its burst by what is
    valid, so that no more than the burst is there at any time."""
    burst = max(bucket.burst, 1 + bucket.rate * SHORTEST_LIFE / VALID / 1_000)
    life = int(min(LIFE, 1_000 * VALID * burst / bucket.rate))
    return life, max(1.0, burst - bucket.rate * life / 1_000)


class RateLimit(Limit):
    """The bucket of a rate. `outdated` is called with the version of the policies if the bucket knows newer ones."""

    def __init__(self, bucket: Bucket, soon: Callable[[Limit, int], None], outdated: Callable[[str], None]) -> None:
        super().__init__(bucket.name, rate_key(bucket.name), soon)
        self._outdated = outdated
        self._taken_until = 0  # when the first one ends of the permits that a sender took last
        self._low = 0  # permits; fewer are too few, if it is not short
        self._asked = 0  # how many permits the last request wanted
        self._got_at = 0  # when a request got some last, of a bucket that is short
        self.valid_until = 0  # no permit lasts longer; read without the lock
        self._use(bucket)

    def _use(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._life, self._burst = life_and_burst(bucket)
        self._made = int(bucket.rate * self._life / 1_000)  # in a life
        self._permits: dict[int, int] = {}  # those of the former rate may be more than this one has
        self._short_until = 0

    def update(self, bucket: Bucket, version: str, now: int) -> None:
        """Go by the bucket of newer policies."""
        with self.lock:
            if version <= self.version:
                return
            self.version, self._not_before = version, now
            if bucket == self._bucket:
                return
            self._use(bucket)
        self._request_soon(now)

    def _had_too_few(self, now: int) -> bool:
        """See `Limit`."""
        return now < self._short_until

    def has_queue(self, now: int) -> bool:
        """Whether messages wait for permits, or will soon, or there are permits for them."""
        return self._waiting > 0 or self.valid_until > now or self.is_short(now)

    def _most_waiting(self, now: int) -> int:
        return min(super()._most_waiting(now), self._made)

    # -- permits -----------------------------------------------------------------------------------------------------

    def _count_permits(self, now: int) -> int:
        for until in [until for until, count in self._permits.items() if until <= now or not count]:
            del self._permits[until]
        return sum(self._permits.values())

    def _pop(self, count: int, until: int) -> list[tuple[int, int]]:
        """Take permits that are valid so long, those first that end first."""
        taken = []
        for end in sorted(self._permits) if len(self._permits) > 1 else self._permits:
            if end > until and (some := min(count, self._permits[end])):
                self._permits[end] -= some
                count -= some
                taken.append((end, some))
        return taken

    def _take(self, count: int, longest: int, now: int) -> int:
        taken = self._pop(count, now)
        self._taken_until = taken[0][0] if taken else now
        return sum([some for _, some in taken])

    def _put_back(self, count: int, now: int) -> None:
        self._permits[self._taken_until] = self._permits.get(self._taken_until, 0) + count

    def begin(self, sender: Listener, count: int, longest: int, now: int) -> int:
        """See `Limit`. Mostly there are permits enough, and nothing is parked: thousands of topics may have a limit each."""
        if not self._parked:
            with self.lock:
                until, there = next(iter(self._permits.items()), (now, 0))
                if until > now and there >= self._low + count:
                    self._permits[until] = there - count
                    self._taken_until = until
                    self._waiting = max(0, self._waiting - count)
                    self._count_begun(count, now)
                    return count
        return super().begin(sender, count, longest, now)

    def take(self, waiting: int, most: int, now: int) -> Permits:
        """Permits for what a pull appends, of a queue that has so many messages waiting."""
        with self.lock:
            free = -(-(self._count_permits(now) - self._waiting) // PART)
            taken = self._pop(min(most, waiting + max(0, free)), now + TRIP)
            self._count_begun(sum([count for _, count in taken]), now)
            return taken

    def put_back(self, permits: Permits, used: int, now: int) -> None:
        """A pull used so many of these, those that end first."""
        with self.lock:
            for until, count in permits:
                left = max(0, count - used)
                used -= count - left
                self._permits[until] = self._permits.get(until, 0) + left
                self._count_begun(-left, now)

    # -- for its asker -----------------------------------------------------------------------------------------------

    def _ready(self, now: int) -> int:
        """How many permits are kept ready beside those that are wanted. If many were and the bucket is short, other nodes
        would lack them; a lone message would use up a burst that was saved."""
        pace = int(self._count_begun(0, now))
        return pace if self.is_short(now) else min(2 * pace + int(self._made * READY), self._made)

    def _is_low(self, now: int) -> bool:
        return sum(self._permits.values()) < self._low and not self.is_short(now)

    def next_request(
        self, now: int, server_ahead: int | None = None, server_now: Now = ""
    ) -> tuple[Spending | None, int | None]:
        """See `Limit`."""
        with self.lock:
            wanted, pace = self._count_wanted(now), int(self._count_begun(0, now))
            if wanted or pace or self._unanswered_since is not None:
                stock = sum([count for until, count in self._permits.items() if until > now + TRIP])
                ready = self._ready(now)
                self._asked, self._low = min(wanted, 4 * pace + MORE) + ready - stock, ready // 2
                if self._asked > 0:
                    until = None if server_ahead is None else server_ahead + now + self._life // 2
                    self._not_before = now + QUICKEST
                    bucket = self._bucket
                    return Spending(self.name, bucket.rate, self._burst, self._asked, until, self.version), None
            self._unanswered_since = None
            return None, now + IDLE if wanted else None

    def _use_answer(self, answer: Any, asked_at: int) -> int | None:
        """See `Limit`."""
        if isinstance(answer, Granted) and not answer.version:
            until = asked_at + self._life
            self._permits[until] = self._permits.get(until, 0) + answer.count
            self.valid_until = max(self.valid_until, until)
            self._not_before = asked_at + round(self._pause(answer, asked_at))
        else:  # nobody knows what was granted, or nothing was
            self._short_until, self._not_before = asked_at + SHORT, asked_at + LONGEST_WAIT
        if self.is_short(asked_at) or answer.count < self._asked:  # the request may have come too late
            return self._not_before
        return asked_at + IDLE if self._parked else None

    def take_answer(self, answer: Any, asked_at: int) -> tuple[int | None, Sequence[Listener], int]:
        """See `Limit`."""
        if isinstance(answer, Granted) and answer.version:
            self._outdated(answer.version)
        return super().take_answer(answer, asked_at)

    def _pause(self, granted: Granted, asked_at: int) -> float:
        """ms until the next request. While the bucket is short, the node that got something lets the others ask first, and of
        these the one that has waited longest asks first: else the same node would be the first one each time."""
        if granted.count >= self._asked or not granted.wait:
            return QUICKEST * random.uniform(0.5, 1.5)
        each = 1_000 / self._bucket.rate
        self._short_until = asked_at + SHORT
        if granted.count:
            self._got_at = asked_at
            full = 0.8 * self._burst * each  # by then the bucket must have been asked, or it would run over
            return max(QUICKEST, min(2.5 * granted.wait, full, LONGEST_WAIT)) * random.uniform(0.8, 1.2)
        if granted.wait > LONGEST_WAIT:
            return LONGEST_WAIT
        waited = asked_at + granted.wait - self._got_at
        return granted.wait + YIELD * each * each / (waited + each) + random.uniform(0, 2)
