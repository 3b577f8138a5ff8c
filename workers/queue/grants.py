"""What a node may hand out of topics whose rate is limited: grants of the buckets in Redis, each good for a short while.

Pull jobs say what they want and take from what there is, in their own threads; who asks the buckets asks here for whom.
What was granted goes to the jobs with the lowest messages aside first, and what is left is for whoever pulls next. A grant
that is not used in time is lost: nothing is ever given back to a bucket.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delayq.policies import Bucket
from delayq.store.commands import Granted, Head
from workers.queue.slots import AT_ONCE, BELIEVED, PATIENCE, JobSlots, SlotPool

__all__ = ["Ask", "Grants", "Lease", "Leases", "Reserved", "Want", "count_of"]

#: ms for which a grant is good, and at least is where the burst is small: what may be used so late is taken off the burst. A held
#: message that was given one needs it until it has come back, by a trip or two more, and any until its send begins. Where that
#: took longer twice within AGAIN ms, those after it are good for twice as long, unless that costs more of the rate than has
#: ended; and for half as long after CALM ms without.
LIFE: Final = 400
SHORTEST_LIFE: Final = 100
LONGEST_LIFE: Final = 6_400
AGAIN: Final = 5_000
CALM: Final = 10_000
#: ms that a grant has to be good for yet where a send is to begin by it: until a thread takes it.
HASTE: Final = 20
#: Grants end at so many moments of a life.
STEPS: Final = 8
#: What is taken of what is there for all lasts for one of so many parts of a life yet, if there is such: trips may take long.
TRIPS: Final = 4
#: At most this part of the burst is granted and good yet, and may be used at once. A burst counts as so much that this is what
#: the rate makes in the shortest life: what the bucket held of less would run over between two asks.
GOOD: Final = 2 / 3
#: ms between two asks for a bucket that is used, between two at all, between those of one that runs over sooner, and the
#: longest while it has nothing.
EVERY: Final = 100
SOONEST: Final = 50
QUICKEST: Final = 10
LONGEST_WAIT: Final = 1_000
#: ms for which a bucket that had less than was wanted is asked for what is needed only; else so many more are there.
#: (No more than the rate makes while they are good: a message that comes alone would cost a burst that was saved up.)
SHORT: Final = 2_000
AHEAD: Final = 1_000
#: ms after which a bucket of which nothing is used or wanted is asked no more.
IDLE: Final = 1_000
#: A job takes no more than this part of what is there for whoever pulls: all pull at the same moment.
PART: Final = 8


class Want(msgspec.Struct, frozen=True):
    """Of one bucket: how many of the messages that stand aside in a queue could go now, and the lowest one."""

    bucket: Bucket
    count: int
    head: Head

    def and_also(self, other: Want) -> Want:
        """Both together."""
        return Want(self.bucket, self.count + other.count, min(self.head, other.head))


class Ask(msgspec.Struct, frozen=True):
    """Ask a bucket for so many messages, of `burst` at most and `rate` a second; they are good for `life` ms."""

    bucket: Bucket
    wanted: int
    rate: float
    burst: float
    life: int

    @property
    def pause(self) -> int:
        """ms after which it has as much again as is worth another ask, at the soonest."""
        return int(max(QUICKEST, min(EVERY, 500 * self.burst / self.rate)))


#: Grants that are good until then (monotonic ms), and how many.
Lease = tuple[int, int]


class Reserved(msgspec.Struct, frozen=True):
    """What a pull may append of all topics of a bucket."""

    bucket: Bucket
    leases: Sequence[Lease]


class _Purse:
    """Grants, those that end first in front: asked for each bucket at each pull."""

    __slots__ = ("_count", "_leases", "ended")

    def __init__(self) -> None:
        self._leases = deque[Lease]()
        self._count = 0  # of all of them
        self.ended = 0  # before anybody took them

    def count(self, now: int) -> int:
        while self._leases and self._leases[0][0] <= now:
            _, count = self._leases.popleft()
            self.ended += count
            self._count -= count
        return self._count

    def lasting(self, at: int) -> int:
        return sum(count for until, count in self._leases if until > at)

    def add(self, leases: Iterable[Lease]) -> None:
        for until, count in leases:
            if count > 0:
                self._count += count
                if self._leases and self._leases[-1][0] == until:
                    count += self._leases.pop()[1]
                self._leases.append((until, count))

    def put_back(self, leases: Sequence[Lease], most: int) -> None:
        """So many of these, which ended in this order, those that last longest. Each lasts as long as it did; those that end
        together are one, so that they do not become ever more."""
        for until, count in reversed(leases):
            if not most:
                return
            some = min(count, most)
            most -= some
            self._count += some
            earlier = self._pop_before(until)
            if self._leases and self._leases[0][0] == until:
                self._leases[0] = until, some + self._leases[0][1]
            else:
                self._leases.appendleft((until, some))
            self._leases.extendleft(reversed(earlier))

    def _pop_before(self, until: int) -> list[Lease]:
        popped = []
        while self._leases and self._leases[0][0] < until:
            popped.append(self._leases.popleft())
        return popped

    def take(self, most: int, now: int, lasting: int = 0) -> list[Lease]:
        """Those that end first of what is good until `lasting`, then what is not."""
        left, taken = min(most, self.count(now)), list[Lease]()
        early = self._pop_before(lasting)
        while left > 0:
            if not self._leases:
                self._leases.append(early.pop())
            until, count = self._leases[0]
            if count > left:
                self._leases[0] = until, count - left
                count = left
            else:
                self._leases.popleft()
            taken.append((until, count))
            self._count -= count
            left -= count
        self._leases.extendleft(reversed(early))
        return taken


class _Known(msgspec.Struct):
    """A bucket that is in use."""

    bucket: Bucket
    spare: _Purse
    life: int  # ms
    others: int = 0  # ms for which grants are good, by any node
    reserve: int = 0  # ms for which grants may be good that were asked for before it became shorter
    reserved_until: int = 0  # monotonic ms
    life_at: int = 0  # since when it is what it is
    ended_at: int = -AGAIN - LONGEST_LIFE  # when some ended too early
    ended: int = 0  # from then on
    handed: int = 0  # since then, to messages that are there
    used: int = 0  # since it was asked for last
    used_at: int = 0  # monotonic ms
    pace: int = 0  # lately, in EVERY
    asked_at: int = 0
    ask_at: int = 0  # not before
    short_at: int = -SHORT  # it had less than was wanted
    awaited_at: int | None = None  # since when messages in memory wait for its next answer

    def ask(self, wanted: int, now: int) -> Ask:
        """Never is more than the burst granted and not used: it holds less than that by what is good yet. Where grants have to
        be good for long, fewer are granted a second, or it would hold next to nothing."""
        life = max(self.life, self.others, self.reserve if now < self.reserved_until else 0)
        good = self._good(life)
        return Ask(self.bucket, wanted, 1_000 * good / life, max(1.0, self._burst - good), self.life)

    @property
    def _burst(self) -> float:
        return max(self.bucket.burst, 1 + self.bucket.rate * SHORTEST_LIFE / GOOD / 1_000)

    def _good(self, life: int) -> float:
        """How many may be granted and good yet, where they are good for so long."""
        return min(self.bucket.rate * life / 1_000, GOOD * self._burst)

    def _longer_is_worth_it(self) -> bool:
        """Whether of what was handed out no less has ended than a life twice as long would cost of the rate."""
        now, then = max(self.life, self.others), max(2 * self.life, self.others)
        left = self._good(then) / then * now / self._good(now)
        return self.ended >= (1 - left) * self.handed

    def see_ended(self, ended: int, now: int) -> None:
        """So many grants ended before those for whom they were meant had come back, or their sends had begun."""
        self.ended += ended
        if ended and (passed := now - self.ended_at) >= self.life:  # and not for the same reason as those before
            if passed < self.life + AGAIN and self._longer_is_worth_it():
                self.life, self.life_at = min(LONGEST_LIFE, 2 * self.life), now
            self.ended_at, self.ended, self.handed = now, ended, 0
        elif now - max(self.life_at, self.ended_at) >= CALM and self.life > (shortest := _life(self.bucket)):
            self.reserve, self.reserved_until = self.life, now + self.life
            self.life, self.life_at = max(shortest, self.life // 2), now


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
                    soon = int(known.bucket.rate * known.life / 1_000)
                    ahead = 2 * used if short else min(16 * known.pace + AHEAD, soon)
                    wanted = sum(want.count for _, want in wants) + ahead - stock
                    wanting = {job for job, _ in wants}  # what nobody wants any more may end
                    known.see_ended(sum([job.ended(name) * (job in wanting) for job in self.jobs]), now)
                    ask = known.ask(wanted, now)
                    known.used, known.asked_at = 0, now
                    known.ask_at = now + min(SOONEST if wants or short else EVERY, ask.pause)
                    if wanted > 0:
                        found.append(ask)
                    woken += self._share_out(known, now)
                at = known.ask_at if wants or not short else max(known.ask_at, known.asked_at + EVERY)
                again = at if again is None else min(again, at)
        for job in woken:
            job.wake()
        return found, again

    def _wants(self, name: str, now: int) -> list[tuple[Grants, Want]]:
        found = [
            (job, want) for job in self.jobs if (want := job.wanted(name)) is not None and now - job.said_at < BELIEVED
        ]
        return sorted(found, key=lambda one: one[1].head)

    def granted(self, ask: Ask, granted: Granted, asked_at: int) -> None:
        """What a bucket granted; it is good from when it was asked, or a little less long: few of them end apart."""
        name, until = ask.bucket.name, asked_at + ask.life
        until -= until % (ask.life // STEPS)
        with self.lock:
            known = self.known.get(name)
            if known is None or known.bucket != ask.bucket:
                return
            known.others = granted.life
            if granted.count < ask.wanted:
                known.short_at = asked_at
                known.ask_at = asked_at + max(ask.pause, min(granted.wait, LONGEST_WAIT))
            known.spare.add([(until, granted.count)])
            woken = {*self._share_out(known, asked_at), *self._answered(known)}
        for job in woken:
            job.wake()

    def _answered(self, known: _Known) -> list[Grants]:
        """Who has waited for this answer."""
        known.awaited_at = None
        return [job for job in self.jobs if known.bucket.name in job.lacks]

    def _share_out(self, known: _Known, now: int) -> list[Grants]:
        """What is there goes to who wants it for messages that stand aside, the lowest first; who got any."""
        name, woken = known.bucket.name, []
        for job, want in self._wants(name, now):
            if leases := known.spare.take(want.count - job.count(name, now), now):
                job.purses.setdefault(name, _Purse()).add(leases)
                known.handed += count_of(leases)
                woken.append(job)
        return woken

    def put_off(self, ask: Ask, asked_at: int) -> None:
        """Nobody knows what was granted."""
        with self.lock:
            if (known := self.known.get(ask.bucket.name)) is None:
                return
            known.ask_at, known.short_at = asked_at + LONGEST_WAIT, asked_at
            woken = self._answered(known)
        for job in woken:
            job.wake()


def _life(bucket: Bucket) -> int:
    """Half of what its burst takes at its rate, within bounds."""
    return int(max(SHORTEST_LIFE, min(LIFE, 500 * bucket.burst / bucket.rate)))


class Grants:
    """What one pull job has of it. `now` is always monotonic ms."""

    def __init__(self, leases: Leases, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.slots = JobSlots(leases.slots, wake)
        self._leases = leases
        self.purses: dict[str, _Purse] = {}
        self.wants: Mapping[str, Want] = {}
        self.lacks: dict[str, Want] = {}  # of what waits in memory
        self.said_at = 0

    @property
    def wants_any(self) -> bool:
        """Whether it has said that something aside could go."""
        return bool(self.wants or self.slots.wanted)

    def wanted(self, name: str) -> Want | None:
        """What it wants of a bucket, aside and in memory; under the lock."""
        aside, lack = self.wants.get(name), self.lacks.get(name)
        return aside.and_also(lack) if aside is not None and lack is not None else aside or lack

    def count(self, name: str, now: int) -> int:
        purse = self.purses.get(name)
        return purse.count(now) if purse is not None else 0

    def ended(self, name: str) -> int:
        """How many grants have ended that it was given and did not take, since this was asked last; under the lock."""
        purse = self.purses.get(name)
        if purse is None:
            return 0
        ended, purse.ended = purse.ended, 0
        return ended

    def want(self, wants: Collection[Want], now: int) -> None:
        """Say what could go, of each bucket, in place of what was said before."""
        if not wants and not self.wants:
            return
        leases = self._leases
        with leases.lock:
            before, self.wants, self.said_at = self.wants, {want.bucket.name: want for want in wants}, now
            hurry = not self.wants.keys() <= before.keys()
            self.purses = {name: purse for name, purse in self.purses.items() if purse.count(now) or purse.ended}
            for want in wants:
                hurry = self._know(want.bucket, now) or hurry
        if hurry:
            leases.hurry()

    def awaits(self, lack: Want, now: int) -> bool:
        """Whether messages wait in memory that have no grant: until the bucket has been asked, unless it had too little lately,
        or does not answer."""
        leases, name = self._leases, lack.bucket.name
        with leases.lock:
            self._know(lack.bucket, now)
            known = leases.known[name]
            if now - known.short_at < SHORT:
                return False
            if known.awaited_at is None:
                known.awaited_at, known.ask_at = now, min(known.ask_at, known.asked_at + AT_ONCE)
            elif now - known.awaited_at > PATIENCE:
                return False
            self.lacks[name] = lack.and_also(self.lacks[name]) if name in self.lacks else lack
            self.said_at = now
        leases.hurry()
        return True

    def lacks_nothing(self) -> None:
        """What waited in memory for a grant or a slot is tried once more."""
        if self.lacks:
            with self._leases.lock:
                self.lacks = {}
        self.slots.lacks_nothing()

    def _know(self, bucket: Bucket, now: int) -> bool:
        """Note that it is used; whether it is new, or another one by now."""
        known = self._leases.known.get(bucket.name)
        if known is not None and known.bucket == bucket:
            return False
        # What the other one granted may be more than this one has: none of it is used any more.
        self._leases.known[bucket.name] = _Known(bucket, _Purse(), _life(bucket), life_at=now)
        for job in self._leases.jobs:
            job.purses.pop(bucket.name, None)
        return True

    def _known(self, bucket: Bucket) -> _Known | None:
        """What is known of it, unless that is another one by now, or was."""
        known = self._leases.known.get(bucket.name)
        return known if known is not None and known.bucket == bucket else None

    def may_bring_back(self, bucket: Bucket, now: int) -> int:
        """How many messages of what stands aside may come back now."""
        with self._leases.lock:
            return self._there(bucket, now)

    def _there(self, bucket: Bucket, now: int) -> int:
        known = self._known(bucket)
        return self.count(bucket.name, now) + -(-known.spare.count(now) // PART) if known is not None else 0

    def spare(self, bucket: Bucket, now: int) -> bool:
        """Whether there is something besides what is for messages that stand aside."""
        with self._leases.lock:
            known = self._known(bucket)
            return known is not None and known.spare.count(now) > 0

    def take(self, bucket: Bucket, most: int, now: int) -> list[Lease]:
        """Grants for so many messages at most, which may be handed out until these end; they count as handed out."""
        with self._leases.lock:
            return self._take(bucket, most, now + HASTE)

    def _take(self, bucket: Bucket, most: int, now: int, part: int = 1) -> list[Lease]:
        """Of its own first, then no more than one of so many parts of what is there for whoever pulls."""
        if (known := self._known(bucket)) is None:
            return []
        purse = self.purses.get(bucket.name)
        taken = purse.take(most, now) if purse is not None else []
        most -= (own := count_of(taken))
        taken += known.spare.take(min(most, -(-known.spare.count(now) // part)), now, now + known.life // TRIPS)
        used = count_of(taken)
        known.used += used
        known.handed += used - own
        return taken

    def reserve(self, buckets: Iterable[Bucket], most: int, now: int) -> list[Reserved]:
        """Take what a pull may hand out of each; the rest is to be given back."""
        with self._leases.lock:
            return [Reserved(bucket, self._take(bucket, most, now, PART)) for bucket in buckets]

    def give_back(self, unused: Iterable[tuple[Reserved, int]]) -> None:
        """A pull did not use so many of these: those that last longest."""
        with self._leases.lock:
            for one, count in unused:
                if count and (known := self._known(one.bucket)) is not None:
                    known.used -= count
                    known.handed -= count
                    known.spare.put_back(one.leases, count)

    def too_late(self, bucket: Bucket, count: int, waited: int, now: int) -> None:
        """So many messages had grants of it and were not sent before these ended.

        They had waited for so many ms: new grants would hardly have been good for longer.
        """
        with self._leases.lock:
            if (known := self._known(bucket)) is not None and waited >= known.life // 2:
                known.see_ended(count, now)

    def close(self) -> None:
        """The job has ended; again is harmless."""
        with self._leases.lock:
            self._leases.jobs = [job for job in self._leases.jobs if job is not self]
        self.slots.close()


def count_of(leases: Iterable[Lease]) -> int:
    """How many grants these are."""
    return sum([count for _, count in leases])
