"""What a node may hand out of topics whose rate is limited: grants of the buckets in Redis, each good for a short while.

Pull jobs say what they want and take from what there is, in their own threads; who asks the buckets asks here for whom.
What was granted goes to the jobs with the lowest messages aside first, and what is left is for whoever pulls next. A grant
that is not used in time is lost: nothing is ever given back to a bucket.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from delayq.policies import Bucket
from delayq.store.commands import Granted, Head
from workers.queue.slots import JobSlots, SlotPool

__all__ = ["Ask", "Grants", "Leases", "Want"]

#: ms for which a grant is good, and at least is where the burst is small: what may be used so late is taken off the burst.
LIFE: Final = 400
SHORTEST_LIFE: Final = 20
#: ms between two asks for a bucket that is used, between two at all, and the longest while it has nothing.
EVERY: Final = 100
SOONEST: Final = 50
LONGEST_WAIT: Final = 1_000
#: ms for which a bucket that had less than was wanted is asked for what is needed only; else so many more are there.
SHORT: Final = 2_000
AHEAD: Final = 1_000
#: ms after which a bucket of which nothing is used or wanted is asked no more.
IDLE: Final = 1_000
#: ms for which a job that says nothing more is believed.
BELIEVED: Final = 3_000
#: A job takes no more than this part of what is there for whoever pulls: all pull at the same moment.
PART: Final = 8


class Want(msgspec.Struct, frozen=True):
    """Of one bucket: how many of the messages that stand aside in a queue could go now, and the lowest one."""

    bucket: Bucket
    count: int
    head: Head


class Ask(msgspec.Struct, frozen=True):
    """Ask a bucket for so many messages, of `burst` at most; they are good for `life` ms."""

    bucket: Bucket
    wanted: int
    burst: int
    life: int


class _Purse:
    """Grants, the oldest first."""

    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases = deque[tuple[int, int]]()  # good until (monotonic ms), how many

    def count(self, now: int) -> int:
        while self._leases and self._leases[0][0] <= now:
            self._leases.popleft()
        return sum(count for _, count in self._leases)

    def lasting(self, at: int) -> int:
        return sum(count for until, count in self._leases if until > at)

    def add(self, count: int, until: int) -> None:
        if count > 0:
            self._leases.append((until, count))

    def put_back(self, count: int, until: int) -> None:
        """With the oldest, so that they do not become ever more."""
        if self._leases:
            oldest, there = self._leases.popleft()
            count, until = count + there, min(until, oldest)
        self._leases.appendleft((until, count))

    def until(self) -> int:
        return self._leases[0][0] if self._leases else 0

    def take(self, most: int, now: int) -> int:
        return self.move(None, most, now)

    def move(self, to: _Purse | None, most: int, now: int) -> int:
        taken = left = max(0, min(most, self.count(now)))
        while left:
            until, count = self._leases.popleft()
            some = min(left, count)
            if count > some:
                self._leases.appendleft((until, count - some))
            if to is not None:
                to.add(some, until)
            left -= some
        return taken


class _Known(msgspec.Struct):
    """A bucket that is in use."""

    bucket: Bucket
    spare: _Purse
    used: int = 0  # since it was asked for last
    used_at: int = 0  # monotonic ms
    pace: int = 0  # lately, in EVERY
    asked_at: int = 0
    ask_at: int = 0  # not before
    short_at: int = -SHORT  # it had less than was wanted


class Leases:
    """All grants of a node. `hurry` is called when a bucket may have to be asked that nobody asks for."""

    def __init__(self, hurry: Callable[[], None] = lambda: None) -> None:
        self.lock = threading.Lock()
        self.hurry = hurry
        self.known: dict[str, _Known] = {}
        self.jobs: list[Grants] = []
        self.slots = SlotPool(hurry)

    def join(self, wake: Callable[[], None]) -> Grants:
        """A pull job takes part; it is woken when it may hand out more."""
        job = Grants(self, wake)
        with self.lock:
            self.jobs.append(job)
        return job

    # -- for who asks the buckets ------------------------------------------------------------------------------------

    def asks(self, now: int) -> tuple[list[Ask], int | None]:
        """What to ask for now (monotonic ms), and when to come again; None: not before somebody hurries."""
        found, again, woken = [], None, list[Grants]()
        with self.lock:
            for name, known in list(self.known.items()):
                wants, passed = self._wants(name, now), now - known.asked_at
                short = now - known.short_at < SHORT
                if now >= known.ask_at and (wants or not short or passed >= EVERY):
                    if known.used or wants:
                        known.used_at = now
                    elif now - known.used_at >= IDLE:
                        del self.known[name]
                        continue
                    # Twice what was used lately is there for what will come; it is used before it is lost. From a bucket that
                    # never had less than was wanted it may be lost, and nobody makes a detour for what is not there yet.
                    stock = known.spare.lasting(now if short else now + EVERY)
                    stock += sum(job.count(name, now) for job in self.jobs)
                    used = known.used * EVERY // max(1, min(passed, EVERY))
                    known.pace = max(used, known.pace // 2)  # it may have had to wait for a moment
                    ahead = 2 * used if short else 16 * known.pace + AHEAD
                    wanted = sum(want.count for _, want in wants) + ahead - stock
                    known.used, known.asked_at, known.ask_at = 0, now, now + SOONEST
                    if wanted > 0:
                        found.append(_ask(known.bucket, wanted))
                    woken += self._share_out(known, now)
                at = known.ask_at if wants or not short else max(known.ask_at, known.asked_at + EVERY)
                again = at if again is None else min(again, at)
        for job in woken:
            job.wake()
        return found, again

    def _wants(self, name: str, now: int) -> list[tuple[Grants, Want]]:
        found = [
            (job, want)
            for job in self.jobs
            if (want := job.wants.get(name)) is not None and now - job.said_at < BELIEVED
        ]
        return sorted(found, key=lambda one: one[1].head)

    def granted(self, ask: Ask, granted: Granted, asked_at: int) -> None:
        """What a bucket granted; it is good from when it was asked."""
        name, until = ask.bucket.name, asked_at + ask.life
        with self.lock:
            known = self.known.get(name)
            if known is None:
                return
            if granted.count < ask.wanted:
                known.short_at = asked_at
                pause = EVERY if ask.life > SOONEST else SOONEST
                known.ask_at = asked_at + max(pause, min(granted.wait, LONGEST_WAIT))
            known.spare.add(granted.count, until)
            woken = self._share_out(known, asked_at)
        for job in woken:
            job.wake()

    def _share_out(self, known: _Known, now: int) -> list[Grants]:
        """What is there goes to who wants it for messages that stand aside, the lowest first; who got any."""
        name, woken = known.bucket.name, []
        for job, want in self._wants(name, now):
            if known.spare.move(job.purses.setdefault(name, _Purse()), want.count - job.count(name, now), now):
                woken.append(job)
        return woken

    def put_off(self, ask: Ask, asked_at: int) -> None:
        """Nobody knows what was granted."""
        with self.lock:
            if (known := self.known.get(ask.bucket.name)) is not None:
                known.ask_at = asked_at + LONGEST_WAIT


def _ask(bucket: Bucket, wanted: int) -> Ask:
    life = int(max(SHORTEST_LIFE, min(LIFE, 500 * bucket.burst / bucket.rate)))
    return Ask(bucket, wanted, max(1, int(bucket.burst - bucket.rate * life / 1_000)), life)


class Grants:
    """What one pull job has of it. `now` is always monotonic ms."""

    def __init__(self, leases: Leases, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.slots = JobSlots(leases.slots, wake)
        self._leases = leases
        self.purses: dict[str, _Purse] = {}
        self.wants: Mapping[str, Want] = {}
        self.said_at = 0

    def count(self, name: str, now: int) -> int:
        purse = self.purses.get(name)
        return purse.count(now) if purse is not None else 0

    def want(self, wants: Collection[Want], now: int) -> None:
        """Say what could go, of each bucket, in place of what was said before."""
        if not wants and not self.wants:
            return
        leases = self._leases
        with leases.lock:
            before, self.wants, self.said_at = self.wants, {want.bucket.name: want for want in wants}, now
            hurry = not self.wants.keys() <= before.keys()
            self.purses = {name: purse for name, purse in self.purses.items() if purse.count(now)}
            for want in wants:
                hurry = self._know(want.bucket, now) or hurry
        if hurry:
            leases.hurry()

    def _know(self, bucket: Bucket, now: int) -> bool:
        """Note that it is used; whether it is new, or another one by now."""
        known = self._leases.known.get(bucket.name)
        if known is None:
            self._leases.known[bucket.name] = _Known(bucket, _Purse())
        elif known.bucket != bucket:
            known.bucket, known.ask_at = bucket, now
        else:
            return False
        return True

    def may_bring_back(self, bucket: Bucket, now: int) -> int:
        """How many messages of what stands aside may come back now."""
        with self._leases.lock:
            return self._there(bucket, now)

    def _there(self, bucket: Bucket, now: int) -> int:
        known = self._leases.known.get(bucket.name)
        spare = -(-known.spare.count(now) // PART) if known is not None else 0
        return self.count(bucket.name, now) + spare

    def spare(self, bucket: Bucket, now: int) -> bool:
        """Whether there is something besides what is for messages that stand aside."""
        with self._leases.lock:
            known = self._leases.known.get(bucket.name)
            return known is not None and known.spare.count(now) > 0

    def take(self, bucket: Bucket, most: int, now: int) -> int:
        """How many messages, of so many, may be handed out; they count as handed out."""
        with self._leases.lock:
            purse = self.purses.get(bucket.name)
            taken = purse.take(most, now) if purse is not None else 0
            if (known := self._leases.known.get(bucket.name)) is not None:
                taken += known.spare.take(most - taken, now)
                known.used += taken
            return taken

    def reserve(self, bucket: Bucket, most: int, now: int) -> tuple[int, int]:
        """Take what a pull may hand out of it, and until when it is good; the rest is to be given back."""
        with self._leases.lock:
            count = min(most, self._there(bucket, now))
            known, purse = self._leases.known.get(bucket.name), self.purses.get(bucket.name)
            until = max(purse.until() if purse is not None else 0, known.spare.until() if known is not None else 0)
        return self.take(bucket, count, now), until

    def give_back(self, bucket: Bucket, count: int, until: int) -> None:
        """A pull did not use so many, which are good until then."""
        with self._leases.lock:
            if count and (known := self._leases.known.get(bucket.name)) is not None:
                known.used -= count
                known.spare.put_back(count, until)

    def close(self) -> None:
        """The job has ended; again is harmless."""
        with self._leases.lock:
            self._leases.jobs = [job for job in self._leases.jobs if job is not self]
        self.slots.close()
