"""A rate limit: permits from a token bucket in Redis, each valid for a short time.

A permit that is not used in time is lost. It does not go back to the bucket, because a lost reply could return it twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.domain.policies import Bucket
from delayq.store.commands import Granted, Spending
from delayq.store.keys import Keys
from workers.limits.limit import IDLE, Limit

#: The ends (monotonic ms) and the numbers of permits.
Permits = Sequence[tuple[int, int]]
#: The longest and the shortest life of a permit in ms. The burst in Redis is smaller by the permits of one life.
LIFE: Final = 400
SHORTEST_LIFE: Final = 100
#: At most this part of the burst is valid at a time, and may be used at once. A small burst counts as larger: this part of it
#: is at least the permits of the shortest life. Otherwise the bucket would overflow between two requests.
VALID: Final = 2 / 3
#: The shortest time between two requests in ms. While permits are short, IDLE is the longest.
QUICKEST: Final = 10
#: A node that just got a permit asks later than others, by this part of the time between two permits.
YIELD: Final = 0.1
#: ms for which a bucket with too few permits is asked only for needed ones. Otherwise permits are kept ready.
SHORT: Final = 2_000
#: A node asks for the permits that it can use while they are valid, by its recent use, and MORE.
MORE: Final = 500
#: A release takes permits that last for at least TRIP ms, because of its round trip.
TRIP: Final = 20


def life_and_burst(bucket: Bucket) -> tuple[int, float]:
    """The life of permits in ms, and the burst of the bucket in Redis.

    That burst is smaller by the valid permits, so that both together never exceed the burst of the policy. It is at least 1,
    since a bucket without room for one permit grants none. So the permits of a small burst live shorter.
    """
    burst = max(bucket.burst, 1 + bucket.rate * SHORTEST_LIFE / VALID / 1_000)
    life = int(min(LIFE, 1_000 * min(VALID * burst, burst - 1) / bucket.rate))
    return life, burst - bucket.rate * life / 1_000


class RateLimit(Limit):
    """The token bucket of a rate. `outdated` is called with the version of newer policies that the bucket has."""

    def __init__(
        self,
        bucket: Bucket,
        keys: Keys,
        soon: Callable[[Limit, int], None],
        outdated: Callable[[str], None],
        now: int = 0,
    ) -> None:
        super().__init__(bucket.name, keys.rate(bucket.name), soon, now)
        self._outdated = outdated
        self._low = 0  # ask for more permits if there are fewer than these
        self._asked = 0  # the number of permits in the last request
        self._got_at = 0  # the time of the last permits, while they are short
        self._use(bucket)

    def _use(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._life, self._burst = life_and_burst(bucket)
        self._made = int(bucket.rate * self._life / 1_000)  # permits of one life
        # The permits by their ends; permits of a former rate are dropped, because they may be too many.
        self._permits: dict[int, int] = {}
        self._short_until = 0

    def update(self, bucket: Bucket, version: str, now: int) -> None:
        """Use the bucket of newer policies."""
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
        """Whether messages wait for permits or permits are short."""
        return self.is_short(now) or self._count_wanted() > 0

    def _most_waiting(self, now: int) -> int:
        return min(super()._most_waiting(now), self._made)

    # -- permits -----------------------------------------------------------------------------------------------------

    def _count_permits(self, now: int) -> int:
        for until in [until for until, count in self._permits.items() if until <= now or not count]:
            del self._permits[until]
        return sum(self._permits.values())

    def _pop(self, count: int, until: int) -> list[tuple[int, int]]:
        """Take permits that are valid longer than `until`, the earliest ends first."""
        taken = []
        for end in sorted(self._permits) if len(self._permits) > 1 else self._permits:
            if end > until and (some := min(count, self._permits[end])):
                self._permits[end] -= some
                count -= some
                taken.append((end, some))
        return taken

    def _take(self, count: int, longest: int, now: int) -> int:
        if self._append:
            count = min(count, self._count_permits(now) - self._reserved())
        return sum([some for _, some in self._pop(count, now)])

    def take(self, most: int, now: int) -> Permits:
        """Take permits for messages that a release appends."""
        with self.lock:
            taken = self._pop(most, now + TRIP)
            self._count_begun(sum([count for _, count in taken]), now)
            return taken

    def put_back(self, permits: Permits, used: int, now: int) -> None:
        """Return the permits that a release did not use. It used those that end first."""
        with self.lock:
            for until, count in permits:
                left = max(0, count - used)
                used -= count - left
                self._permits[until] = self._permits.get(until, 0) + left
                self._count_begun(-left, now)

    # -- for its asker -----------------------------------------------------------------------------------------------

    def _ready(self, now: int) -> int:
        """The number of permits to keep ready besides the wanted ones.

        While permits are short, other nodes need them. And a lone message must not use up a saved burst.
        """
        pace = int(self._count_begun(0, now))
        return pace if self.is_short(now) else min(2 * pace + 1, self._made)

    def _is_low(self, now: int) -> bool:
        return sum(self._permits.values()) < self._low and not self.is_short(now)

    def _request(self, wanted: int, now: int, server_ahead: int | None) -> tuple[Spending | None, int | None]:
        """See `Limit`."""
        pace = int(self._count_begun(0, now))
        if wanted or pace or self._requested:
            stock = sum([count for until, count in self._permits.items() if until > now + TRIP])
            ready = self._ready(now)
            self._asked, self._low = min(wanted, 4 * pace + MORE) + ready - stock, ready // 2
            if self._asked > 0:
                until = None if server_ahead is None else server_ahead + now + self._life // 2
                self._not_before = now + QUICKEST
                bucket = self._bucket
                return Spending(self.name, bucket.rate, self._burst, self._asked, until, self.version), None
        self._requested = False
        return None, now + IDLE if wanted else None

    def _use_answer(self, answer: Any, asked_at: int) -> int | None:
        """See `Limit`."""
        if isinstance(answer, Granted) and answer.version:
            self._outdated(answer.version)
        if isinstance(answer, Granted) and not answer.version:
            until = asked_at + self._life
            self._permits[until] = self._permits.get(until, 0) + answer.count
            self._not_before = asked_at + round(self._pause(answer, asked_at))
        else:  # the number is unknown, or it is 0
            self._short_until, self._not_before = asked_at + SHORT, asked_at + IDLE
        if self.is_short(asked_at) or answer.count < self._asked:  # the request may have come too late
            return self._not_before
        return asked_at + IDLE if self._senders or self._turns else None

    def _pause(self, granted: Granted, asked_at: int) -> float:
        """The ms until the next request.

        While permits are short, a node that got some lets the others ask first. The node that has waited longest asks before the
        others. Otherwise the same node would be first each time.
        """
        if granted.count >= self._asked or not granted.wait:
            return QUICKEST * random.uniform(0.5, 1.5)
        each = 1_000 / self._bucket.rate
        self._short_until = asked_at + SHORT
        if granted.count:
            self._got_at = asked_at
            full = 0.8 * self._burst * each  # the bucket would overflow without a request by then
            return max(QUICKEST, min(2.5 * granted.wait, full, IDLE)) * random.uniform(0.8, 1.2)
        if granted.wait > IDLE:
            return IDLE
        waited = asked_at + granted.wait - self._got_at
        return granted.wait + YIELD * each * each / (waited + each) + random.uniform(0, 2)
