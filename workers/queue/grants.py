"""What a node may hand out of topics whose rate is limited: grants of the buckets in Redis, each good for a short while.

Pull jobs say what they want and take from what there is, in their own threads; who asks the buckets asks here for whom. What
was granted goes to the lowest first, whether it is offered in memory or stands aside: a job may take no more than those leave
that have something lower. A grant that is not used in time is lost: nothing is ever given back to a bucket.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delayq.policies import Bucket
from delayq.store.commands import Granted, Head
from workers.queue.offers import Leave, Offer, Offers, Sends, take_back
from workers.queue.slots import AT_ONCE, BELIEVED, PATIENCE, JobSlots, SlotPool
from workers.sending.message import Grant, InFlightMessage

__all__ = ["Ask", "Grants", "Lease", "Leases", "Reserved", "Want", "count_of"]

#: ms for which a grant is good at the most, and at least: until a send by it begins, in the thread that takes it. What may be
#: used so late is taken off the burst.
LIFE: Final = 400
SHORTEST_LIFE: Final = 100
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
#: A node asks for twice what it used lately in a life, and so many more: it may have been held up.
MORE: Final = 500
#: ms after which a bucket of which nothing is used or wanted is asked no more.
IDLE: Final = 1_000
#: A pull reserves no more than this part of what nobody wants: all pull at the same moment.
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
    """Ask a bucket for so many messages, of `burst` at most. They are good for `life` ms, and of no use after `until`, by the
    clock of its server (Unix ms)."""

    bucket: Bucket
    wanted: int
    burst: float
    life: int
    until: int | None = None

    @property
    def pause(self) -> int:
        """ms after which it has as much again as is worth another ask, at the soonest."""
        return int(max(QUICKEST, min(EVERY, 500 * self.burst / self.bucket.rate)))


#: Grants that are good until then (monotonic ms), and how many.
Lease = tuple[int, int]


class Reserved(msgspec.Struct, frozen=True):
    """What a pull may append of all topics of a bucket."""

    bucket: Bucket
    leases: Sequence[Lease]


class _Purse:
    """Grants, those that end first in front: asked for each bucket at each pull."""

    __slots__ = ("_count", "_leases")

    def __init__(self) -> None:
        self._leases = deque[Lease]()
        self._count = 0  # of all of them

    def count(self, now: int) -> int:
        while self._leases and self._leases[0][0] <= now:
            self._count -= self._leases.popleft()[1]
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
    offers: Offers[Grants]
    life: int  # ms
    spare: _Purse = msgspec.field(default_factory=_Purse)
    jobs: set[Grants] = msgspec.field(default_factory=set)  # that want or lack any, or did
    used: int = 0  # since it was asked for last
    used_at: int = 0  # monotonic ms
    pace: int = 0  # lately, in EVERY
    asked_at: int = 0
    ask_at: int = 0  # not before
    short_at: int = -SHORT  # it had less than was wanted
    awaited_at: int | None = None  # since when messages in memory wait for its next answer
    brought: tuple[int, int] = (0, 0)  # by the last two answers
    server: tuple[int, int] | None = None  # its clock minus ours, by those: as much more as an answer took, at the most

    def ask(self, wanted: int, now: int) -> Ask:
        """Never is more than the burst granted and not used: the bucket holds less than that by what is good yet.

        What it would be given in the second half of their life would hardly go: a bucket that has filled up while its server
        stood still is for those who ask then.
        """
        burst = max(1.0, _burst(self.bucket) - self.bucket.rate * self.life / 1_000)
        until = None if self.server is None else min(self.server) + now + self.life // 2
        return Ask(self.bucket, wanted, burst, self.life, until)

    def short(self, now: int) -> bool:
        """Whether it had less than was wanted lately."""
        return now - self.short_at < SHORT

    def wants(self, now: int) -> list[tuple[Want, Grants]]:
        """What jobs want of it, the lowest first; those that have not said so for long are not believed."""
        name, found = self.bucket.name, []
        for job in list(self.jobs):
            if (want := job.wanted(name)) is None or now - job.said_at >= BELIEVED:
                self.jobs.discard(job)
            else:
                found.append((want, job))
        return sorted(found, key=_head)

    def left(self, job: Grants | None, now: int, more: int = 0) -> int:
        """How much there is, and `more`, for a job besides what is for those that have something lower; None, or one that wants
        nothing: besides what is wanted."""
        left = self.spare.count(now) + more
        for want, other in self.wants(now) if self.jobs else ():
            if other is job:
                break
            left -= want.count
        return max(0, left)

    def offered(self, now: int) -> int:
        """How many messages may be offered: none while it has all that is wanted, and else as many as an answer brings. One at
        least, or nothing would ever go where trips take longer than grants are good."""
        most = min(max(self.brought), int(self.bucket.rate * self.life / 1_000))
        return max(1, most) if self.short(now) else 0

    def match(self, now: int, sends: Sends) -> list[Grants]:
        """The offers go for which there is a grant, and a slot where they need one; the jobs that have to take some back."""
        if not self.offers or not (left := self.spare.count(now + HASTE)):
            return []
        wants = self.wants(now)[::-1]

        def leave(offer: Offer, job: Grants) -> Leave | None:
            nonlocal left
            while wants and wants[-1][0].head < offer.place:
                left -= wants.pop()[0].count
            if left <= 0:
                return None
            slot = None
            if offer.slots is not None:  # last: it would stand idle, and be missed by others
                taken = job.slots.take(offer.slots, 1, offer.forwarder.longest, now)
                if not taken:
                    return None
                slot = taken[0]
            [(until, _)] = self.spare.take(1, now + HASTE)
            self.used += 1
            left -= 1
            return Grant(self.bucket, until), slot

        return self.offers.match(now, leave, sends)


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
                passed, short = now - known.asked_at, known.short(now)
                wants = sum([want.count for want, _ in known.wants(now)]) + len(known.offers)
                if now >= known.ask_at and (wants or not short or passed >= EVERY):
                    if known.used or wants:
                        known.used_at = now
                    elif now - known.used_at >= IDLE:
                        del self.known[name]
                        continue
                    # Twice what was used lately is there for what will come; it is used before it is lost. From a bucket that
                    # never had less than was wanted it may be lost, and nobody makes a detour for what is not there yet.
                    stock = known.spare.lasting(now if short else now + EVERY)
                    used = known.used * EVERY // max(1, min(passed, EVERY))
                    known.pace = max(used, known.pace // 2)  # it may have had to wait for a moment
                    soon = int(known.bucket.rate * known.life / 1_000)
                    ahead = 2 * used if short else min(16 * known.pace + AHEAD, soon)
                    # What is aside for long gets no more than can go while it is good: the rest would be lost for all nodes.
                    most = 2 * known.pace * known.life // EVERY + MORE
                    ask = known.ask(min(wants, most) + ahead - stock, now)
                    known.used, known.asked_at = 0, now
                    known.ask_at = now + min(SOONEST if wants or short else EVERY, ask.pause)
                    if ask.wanted > 0:
                        found.append(ask)
                    woken += self._served(known, now)
                at = known.ask_at if wants or not short else max(known.ask_at, known.asked_at + EVERY)
                again = at if again is None else min(again, at)
        for job in woken:
            job.wake()
        return found, again

    def granted(self, ask: Ask, granted: Granted, asked_at: int) -> None:
        """What a bucket granted; it is good from when it was asked, or a little less long: few of them end apart."""
        name, until = ask.bucket.name, asked_at + ask.life
        until -= until % (ask.life // STEPS)
        with self.lock:
            known = self.known.get(name)
            if known is None or known.bucket != ask.bucket:
                return
            ahead = granted.now - asked_at
            known.server = ahead if known.server is None else known.server[1], ahead
            if granted.count < ask.wanted and granted.wait:
                known.short_at = asked_at
                known.ask_at = asked_at + max(ask.pause, min(granted.wait, LONGEST_WAIT))
            known.spare.add([(until, granted.count)])
            known.brought = known.brought[1], granted.count
            late = known.match(asked_at, sends := Sends())
            woken = {*late, *self._served(known, asked_at), *self._answered(known)}
        sends.hand_over()
        for job in woken:
            job.wake()

    def _answered(self, known: _Known) -> list[Grants]:
        """Who has waited for this answer."""
        known.awaited_at = None
        return [job for job in self.jobs if known.bucket.name in job.lacks]

    @staticmethod
    def _served(known: _Known, now: int) -> list[Grants]:
        """The jobs for which something is there, or room among the offers."""
        woken, left = [], known.spare.count(now) + known.offers.open(known.offered(now))
        for want, job in known.wants(now) if left else ():
            if left <= 0:
                break
            woken.append(job)
            left -= want.count
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


def _burst(bucket: Bucket) -> float:
    """The burst that counts."""
    return max(bucket.burst, 1 + bucket.rate * SHORTEST_LIFE / GOOD / 1_000)


def _life(bucket: Bucket) -> int:
    """As long as what the rate makes meanwhile may be good."""
    return int(min(LIFE, 1_000 * GOOD * _burst(bucket) / bucket.rate))


class Grants:
    """What one pull job has of it. `now` is always monotonic ms."""

    def __init__(self, leases: Leases, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.slots = JobSlots(leases.slots, wake)
        self._leases = leases
        self._offers = False  # there may be some
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

    def want(self, wants: Collection[Want], now: int) -> None:
        """Say what could go, of each bucket, in place of what was said before."""
        if not wants and not self.wants:
            return
        leases = self._leases
        with leases.lock:
            before, self.wants, self.said_at = self.wants, {want.bucket.name: want for want in wants}, now
            hurry = not self.wants.keys() <= before.keys()
            for want in wants:
                hurry = self._know(want.bucket, now) or hurry
                leases.known[want.bucket.name].jobs.add(self)
        if hurry:
            leases.hurry()

    def awaits(self, lack: Want, now: int) -> bool:
        """Whether messages wait in memory that have no grant: until the bucket has been asked, unless it had too little lately,
        or does not answer."""
        leases, name = self._leases, lack.bucket.name
        with leases.lock:
            self._know(lack.bucket, now)
            known = leases.known[name]
            if known.short(now):
                return False
            if known.awaited_at is None:
                known.awaited_at, known.ask_at = now, min(known.ask_at, known.asked_at + AT_ONCE)
            elif now - known.awaited_at > PATIENCE:
                return False
            known.jobs.add(self)
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
        jobs, offers = (known.jobs, known.offers) if known is not None else (set[Grants](), Offers[Grants]())
        self._leases.known[bucket.name] = _Known(bucket, offers, _life(bucket), jobs=jobs)
        return True

    def _known(self, bucket: Bucket) -> _Known | None:
        """What is known of it, unless that is another one by now, or was."""
        known = self._leases.known.get(bucket.name)
        return known if known is not None and known.bucket == bucket else None

    def may_bring_back(self, bucket: Bucket, now: int, *, offered: bool) -> int:
        """How many messages of what stands aside may come back now; whether they may be `offered`."""
        with self._leases.lock:
            if (known := self._known(bucket)) is None:
                return 0
            return known.left(self, now, known.offers.open(known.offered(now)) if offered else 0)

    def spare(self, bucket: Bucket, now: int) -> bool:
        """Whether there is something besides what is for messages that stand aside."""
        with self._leases.lock:
            known = self._known(bucket)
            return known is not None and known.left(None, now) > 0

    def take(self, bucket: Bucket, most: int, now: int) -> list[Lease]:
        """Grants for so many messages at most, which may be handed out until these end; they count as handed out."""
        with self._leases.lock:
            return self._take(bucket, most, now + HASTE)

    def _take(self, bucket: Bucket, most: int, now: int, part: int = 1) -> list[Lease]:
        """Where it wants nothing, no more than one of so many parts of what nobody wants."""
        if (known := self._known(bucket)) is None:
            return []
        left = known.left(self, now)
        if part > 1 and self.wanted(bucket.name) is None:
            left = -(-left // part)
        taken = known.spare.take(min(most, left), now, now + known.life // TRIPS)
        known.used += count_of(taken)
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
                    known.spare.put_back(one.leases, count)

    # -- offers ------------------------------------------------------------------------------------------------------

    def offer(self, bucket: Bucket, offers: Sequence[Offer], now: int) -> int:
        """How many of these messages, which have no grant, wait for the next ones, the first of them: each goes to its forwarder
        and is reported on, or is taken back."""
        with self._leases.lock:
            known = self._known(bucket)
            if known is None or not (room := known.offers.room(known.offered(now))):
                return 0
            self._offers = True
            known.offers.add(offers[:room], self)
            known.match(now, sends := Sends())
        sends.hand_over()
        return min(room, len(offers))

    def take_back(self, which: Callable[[InFlightMessage], bool] = lambda _: True) -> list[InFlightMessage]:
        """Such messages that were offered and have had no grant; they are offered no more."""
        if not self._offers:
            return []
        with self._leases.lock:
            limits = (known.offers for known in self._leases.known.values())
            found, self._offers = take_back(limits, self, which)
        return found

    def close(self) -> None:
        """The job has ended; again is harmless."""
        self.take_back()
        with self._leases.lock:
            self._leases.jobs = [job for job in self._leases.jobs if job is not self]
        self.slots.close()


def _head(one: tuple[Want, object]) -> Head:
    return one[0].head


def count_of(leases: Iterable[Lease]) -> int:
    """How many grants these are."""
    return sum([count for _, count in leases])
