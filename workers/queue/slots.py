"""The slots that a node has of those in Redis: each message of a topic of which only so many are sent at a time has one while
it is sent.

Pull jobs say what they want, take slots and give them back, in their own threads; who asks Redis asks here for whom. A slot
that was given back is handed out again for a short while, and goes back to Redis then, so that other nodes have a chance.

Where there are too few, messages that will be next are offered: they wait in memory, as many as had slots lately.
"""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delayq.policies import Slots
from delayq.store.commands import MOST_SLOTS, Head, taken_slots
from workers.queue.offers import Leave, Offer, Offers, Sends, take_back
from workers.sending.message import InFlightMessage, Slot

__all__ = ["AT_ONCE", "BELIEVED", "PATIENCE", "JobSlots", "SlotAsk", "SlotPool"]

#: ms for which a slot is handed out, again and again; and for which it is taken besides the longest send: until a message
#: goes that has been handed over, and until who looks for hung sends has given it up.
HANDED_OUT: Final = 400
BESIDES: Final = 1_500
#: ms between two asks, at least; the longest between giving some back and taking others while there are too few; after an
#: error; and after which slots that nobody uses or wants are asked for no more.
EVERY: Final = 50
APART: Final = 40
#: A node that has all slots of more than FEW gives one of LEFT of them back, and renews the others in the same call: all of them
#: would stand idle each time else, for nobody.
LEFT: Final = 4
FEW: Final = 8
AFTER_ERROR: Final = 1_000
IDLE: Final = 1_000
#: ms for which a job that says nothing more is believed.
BELIEVED: Final = 3_000
#: ms for which messages wait in memory for what has not been asked for yet, which is as long as for a target that finishes
#: nothing; and after the last ask for what they wait for.
PATIENCE: Final = 100
AT_ONCE: Final = 5
#: ms: as many messages are offered as slots came free in them, so each waits for about as long.
LATELY: Final = 100
_NEVER: Final = 2**62


class SlotAsk(msgspec.Struct, frozen=True):
    """Give slots back, and take so many others for `life` ms by a call of this name."""

    slots: Slots
    life: int
    wanted: int
    call: str
    given: Sequence[tuple[str, int]]  # names, and when each expires


class _Known(msgspec.Struct):
    """Slots that are in use."""

    slots: Slots
    life: int
    free: list[Slot] = []  # see `fresh`
    ends: int = _NEVER  # the earliest moment at which one of them is not handed out any more
    given: list[tuple[str, int]] = []
    used: int = 0  # since they were asked for last
    used_at: int = 0  # monotonic ms
    held: dict[str, int] = {}  # the names of all that this node has, and when each expires
    ask_at: int = 0  # not before
    take_at: int = 0  # and others not before that
    left: int | None = None  # by the last ask, after it took all that there was; None if it did not
    alone: bool = False  # there are not few, and no other node had any
    short: bool = False  # there were fewer than were wanted
    awaited_at: int | None = None  # since when messages in memory wait for the next answer
    offers: Offers[JobSlots] = msgspec.field(default_factory=Offers)
    ends_from: int = 0  # monotonic ms, since when it is counted
    ended: int = 0  # how many sends have
    ended_before: int = 0  # in LATELY before that

    def end(self, count: int, now: int) -> None:
        """So many sends have ended."""
        if (passed := now - self.ends_from) >= LATELY:
            self.ended_before, self.ended, self.ends_from = self.ended if passed < 2 * LATELY else 0, 0, now
        self.ended += count

    def offered(self, now: int) -> int:
        """How many messages may be offered: none while there are enough slots, or where sends take long."""
        self.end(0, now)
        return max(self.ended, self.ended_before) if self.short else 0

    def open(self, now: int) -> int:
        """For how many held messages there is something: a slot, or a place among the offers."""
        return len(self.fresh(now)) + self.offers.open(self.offered(now))

    def match(self, now: int, sends: Sends) -> list[JobSlots]:
        """The offers go for which there is a slot by now; the jobs that have to take some back."""
        if not self.offers or not (free := self.fresh(now)):
            return []

        def leave(offer: Offer, _: JobSlots) -> Leave | None:
            if (slot := _lasting(free, offer.forwarder.longest)) is None:
                return None
            self.used += 1
            return None, slot

        return self.offers.match(now, leave, sends)

    def add(self, slots: Sequence[Slot]) -> None:
        """They can be handed out."""
        self.free += slots
        self.ends = min(self.ends, *(slot.until for slot in slots)) if slots else self.ends

    def fresh(self, now: int) -> list[Slot]:
        """Those that can be handed out; what was not in time is given back."""
        if self.ends <= now:
            self.given += [(slot.name, slot.expires) for slot in self.free if slot.until <= now]
            free, self.free, self.ends = self.free, [], _NEVER
            self.add([slot for slot in free if slot.until > now])
        return self.free


class SlotPool:
    """All slots of a node. `hurry` is called when somebody has to ask for some, or to give them back."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.hurry = hurry
        self.known: dict[str, _Known] = {}
        self.jobs: list[JobSlots] = []
        self._maker = secrets.token_hex(8)
        self._calls = 0
        self._closed = False
        self._comes_at: int | None = None  # when who asks Redis comes again

    # -- for who asks Redis ------------------------------------------------------------------------------------------

    def asks(self, now: int) -> tuple[list[SlotAsk], int | None]:
        """What to ask for now (monotonic ms), and when to come again; None: not before somebody hurries."""
        found, again = [], None
        with self.lock:
            for name, known in list(self.known.items()):
                free = len(known.fresh(now))
                known.given = [one for one in known.given if one[1] > now]  # else it is free by itself
                known.held = {one: expires for one, expires in known.held.items() if expires > now}
                wants = len(known.offers) + sum(count for _, count in self.wants(name, now))
                if known.used or wants:
                    known.used_at = now
                wanted = wants + (0 if known.short else known.used)
                wanted = min(wanted, known.slots.most, MOST_SLOTS) - free
                wanted = 0 if self._closed else max(0, wanted)
                if now >= known.ask_at and (wanted or known.given):
                    found += self._ask(known, wanted, now)
                    at = known.ask_at
                elif wanted or known.given:
                    at = known.ask_at
                elif free:
                    at = known.ends
                elif now - known.used_at >= IDLE:
                    del self.known[name]
                    continue
                else:
                    at = known.used_at + IDLE
                again = at if again is None else min(again, at)
            self._comes_at = again
        return found, again

    def _ask(self, known: _Known, wanted: int, now: int) -> list[SlotAsk]:
        given, known.given = known.given[:MOST_SLOTS], known.given[MOST_SLOTS:]
        known.used, known.ask_at = 0, now + EVERY
        renewed: list[tuple[str, int]] = []
        left: list[tuple[str, int]] = []
        for one in given:
            kept = not known.short or (known.alone and random.randrange(LEFT))
            (renewed if kept else left).append(one)
            known.held.pop(one[0], None)
        if known.short:
            # Others wait for what is left, perhaps: it is not taken again in the same moment. What was left before may be by now:
            # as each send ends at a moment of its own, there would be hardly any at which nothing is given back.
            if now < known.take_at:
                wanted = min(wanted, len(renewed))
                known.left = None
            else:
                known.left = len(left)
                known.take_at = now + random.randint(1, APART) if left else now
            if now < known.take_at:
                known.ask_at = min(known.ask_at, known.take_at)
        found = [self._named(known, wanted, renewed)] if wanted or renewed else []
        return [*found, self._named(known, 0, left)] if left else found

    def _named(self, known: _Known, wanted: int, given: Sequence[tuple[str, int]]) -> SlotAsk:
        self._calls += 1
        return SlotAsk(known.slots, known.life, wanted, f"{self._maker}:{self._calls}", given)

    def wants(self, name: str, now: int) -> list[tuple[JobSlots, int]]:
        """The jobs that have messages aside, each with how many, the lowest first; under the lock."""
        found = [
            (want[1], place, want[0])
            for place, job in enumerate(self.jobs)
            if now - job.said_at < BELIEVED and (want := job.wants(name)) is not None
        ]
        return [(self.jobs[place], count) for _, place, count in sorted(found)]

    def taken(self, ask: SlotAsk, count: int, asked_at: int) -> None:
        """What Redis has answered to an ask of that time."""
        names = taken_slots(ask.life, ask.call, count)
        with self.lock:
            known = self._know(ask.slots.name, ask.slots, ask.life)
            if ask.wanted:
                known.short = count < ask.wanted
            until, expires = asked_at + HANDED_OUT, asked_at + ask.life
            known.add([Slot(ask.slots, name, until, expires) for name in names])
            known.held.update(dict.fromkeys(names, expires))
            if ask.wanted and known.left is not None:
                known.alone = len(known.held) + known.left >= known.slots.most > FEW
            late = known.match(asked_at, sends := Sends())
            woken = {*late, *self._served(known, asked_at), *self._answered(known)}
        sends.hand_over()
        for job in woken:
            job.wake()

    def put_off(self, ask: SlotAsk, asked_at: int) -> None:
        """Nobody knows what became of an ask: what it may have taken is given back, as what it gave back is again."""
        expires = asked_at + ask.life
        with self.lock:
            known = self._know(ask.slots.name, ask.slots, ask.life)
            known.given += [*ask.given, *((name, expires) for name in taken_slots(ask.life, ask.call, ask.wanted))]
            known.ask_at, known.short = asked_at + AFTER_ERROR, True
            woken = self._answered(known)
        for job in woken:
            job.wake()

    def close(self) -> None:
        """Take none any more; the next asks give back what is there."""
        with self.lock:
            self._closed = True
            for known in self.known.values():
                known.free = [msgspec.structs.replace(slot, until=0) for slot in known.free]
                known.ends = known.ask_at = 0

    # -- under the lock ----------------------------------------------------------------------------------------------

    def _know(self, name: str, slots: Slots, life: int) -> _Known:
        known = self.known.get(name)
        if known is None:
            known = self.known[name] = _Known(slots, life)
        return known

    def use(self, slots: Slots, life: int, now: int) -> _Known:
        """What is known of slots that a job uses, which are so many by now."""
        known = self._know(slots.name, slots, life)
        if known.slots != slots:
            known.slots, known.short = slots, False
        known.life, known.used_at = max(known.life, life), now
        return known

    def _served(self, known: _Known, now: int) -> list[JobSlots]:
        """The jobs for which something is there."""
        found, left = [], known.open(now)
        for job, count in self.wants(known.slots.name, now):
            if left <= 0:
                break
            found.append(job)
            left -= count
        return found

    def _answered(self, known: _Known) -> list[JobSlots]:
        """The jobs that have waited for this answer."""
        known.awaited_at = None
        return [job for job in self.jobs if known.slots.name in job.lacks]

    def free_for(self, job: JobSlots | None, slots: Slots, now: int, *, offered: bool = False) -> int:
        """For how many messages that this job holds there is something, after those that hold something lower; None: for what
        nobody holds. A place among the offers is something for what may be `offered` only."""
        known = self.known.get(slots.name)
        if known is None:
            return 0
        left = known.open(now) if offered else len(known.fresh(now))
        for other, count in self.wants(slots.name, now):
            if other is job:
                break
            left -= count
        return max(0, left)

    def put_back(self, slots: Iterable[Slot], now: int, *, ended: bool) -> tuple[Sends, list[JobSlots], bool]:
        """They are handed out again, or go back to Redis; what goes now, the jobs that may go on, and whether to hurry. `ended`
        says whether they were used."""
        by_name = dict[str, list[Slot]]()
        for slot in slots:
            by_name.setdefault(slot.slots.name, []).append(slot)
        sends, woken, hurry = Sends(), list[JobSlots](), False
        for name, some in by_name.items():
            known = self._know(name, some[0].slots, some[0].expires - some[0].until + HANDED_OUT)
            if ended:
                known.end(len(some), now)
            good = [slot for slot in some if slot.until > now and not self._closed]
            known.add(good)
            at = known.ends
            if len(good) < len(some):
                known.given += [(slot.name, slot.expires) for slot in some if slot.until <= now or self._closed]
                if known.alone:
                    known.ask_at = min(known.ask_at, now + AT_ONCE)
                at = min(at, known.ask_at)
            if self._comes_at is None or self._comes_at > at:
                self._comes_at, hurry = at, True
            if good:
                woken += [*known.match(now, sends), *self._served(known, now)]
        return sends, woken, hurry


class JobSlots:
    """What one pull job has of it. `now` is always monotonic ms."""

    def __init__(self, pool: SlotPool, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._pool = pool
        self.wanted: Mapping[str, tuple[int, Head]] = {}
        self.lacks: dict[str, tuple[int, Head]] = {}  # of what waits in memory
        self.said_at = 0
        self._offers = False  # there may be some
        with pool.lock:
            pool.jobs.append(self)

    def wants(self, name: str) -> tuple[int, Head] | None:
        """How many it wants, for what is aside and in memory, and the lowest; under the lock."""
        return _sum(self.wanted.get(name), self.lacks.get(name))

    def awaits(self, slots: Slots, count: int, lowest: Head, longest: int, now: int) -> bool:
        """Whether so many messages that have none wait in memory: until others were asked for, unless there were too few lately,
        or nobody answers."""
        with self._pool.lock:
            known = self._pool.use(slots, longest + BESIDES, now)
            if known.short:
                return False
            if known.awaited_at is None:
                known.awaited_at, known.ask_at = now, min(known.ask_at, now + AT_ONCE)
            elif now - known.awaited_at > PATIENCE:
                return False
            self.lacks[slots.name] = _sum(self.lacks.get(slots.name), (count, lowest)) or (count, lowest)
            self.said_at = now
        self._pool.hurry()
        return True

    def lacks_nothing(self) -> None:
        """What waited in memory is tried once more."""
        if self.lacks:
            with self._pool.lock:
                self.lacks = {}

    def want(self, wants: Mapping[Slots, tuple[int, Head]], longest: int, now: int) -> None:
        """Say how many messages are aside that could go, and the lowest, in place of what was said before; and how long a send
        may take."""
        if not wants and not self.wanted:
            return
        with self._pool.lock:
            before, self.said_at = self.wanted, now
            self.wanted = {slots.name: want for slots, want in wants.items()}
            for slots in wants:
                self._pool.use(slots, longest + BESIDES, now)
        if not self.wanted.keys() <= before.keys():
            self._pool.hurry()

    def may_bring_back(self, slots: Slots, now: int, *, offered: bool = True) -> int:
        """How many messages of what stands aside may come back now; whether they may be `offered`."""
        with self._pool.lock:
            return self._pool.free_for(self, slots, now, offered=offered)

    def spare(self, slots: Slots, now: int) -> bool:
        """Whether there is something besides what is for messages that stand aside."""
        with self._pool.lock:
            return self._pool.free_for(None, slots, now) > 0

    def take(self, slots: Slots, most: int, longest: int, now: int) -> list[Slot]:
        """At most so many of them, for sends that may take so long."""
        with self._pool.lock:
            known = self._pool.use(slots, longest + BESIDES, now)
            free, taken, too_old = known.fresh(now), list[Slot](), list[Slot]()
            while free and len(taken) < most:
                slot = free.pop()
                (taken if slot.until + longest <= slot.expires else too_old).append(slot)
            free += too_old
            known.used += len(taken)
            return taken

    def give_back(self, slots: Sequence[Slot], now: int) -> None:
        """They were not used after all."""
        self._put_back(slots, now, ended=False)

    def pass_on(self, slots: Sequence[Slot], now: int) -> None:
        """The sends that had them have ended; from any thread."""
        self._put_back(slots, now, ended=True)

    def _put_back(self, slots: Sequence[Slot], now: int, *, ended: bool) -> None:
        with self._pool.lock:
            sends, woken, hurry = self._pool.put_back(slots, now, ended=ended)
        sends.hand_over()
        for job in woken:
            if job is not self:  # it is at it, or told of what has ended
                job.wake()
        if hurry:
            self._pool.hurry()

    # -- offers ------------------------------------------------------------------------------------------------------

    def offer(self, slots: Slots, offers: Sequence[Offer], now: int) -> int:
        """How many of these messages, which have no slot, wait for the next ones, the first of them: each goes to its forwarder
        and is reported on, or is taken back."""
        with self._pool.lock:
            known = self._pool.known.get(slots.name)
            if known is None or not (room := known.offers.room(known.offered(now))):
                return 0
            self._offers = True
            known.offers.add(offers[:room], self)
            known.match(now, sends := Sends())
        sends.hand_over()
        return min(room, len(offers))

    def take_back(self, which: Callable[[InFlightMessage], bool] = lambda _: True) -> list[InFlightMessage]:
        """Such messages that were offered and have had no slot; they are offered no more."""
        if not self._offers:
            return []
        with self._pool.lock:
            limits = (known.offers for known in self._pool.known.values())
            found, self._offers = take_back(limits, self, which)
        return found

    def close(self) -> None:
        """The job has ended; again is harmless."""
        self.take_back()
        with self._pool.lock:
            self._pool.jobs = [job for job in self._pool.jobs if job is not self]


def _lasting(free: list[Slot], longest: int) -> Slot | None:
    """Take one for a send that may take so long."""
    for at in range(len(free) - 1, -1, -1):
        if free[at].until + longest <= free[at].expires:
            return free.pop(at)
    return None


def _sum(one: tuple[int, Head] | None, other: tuple[int, Head] | None) -> tuple[int, Head] | None:
    return (one[0] + other[0], min(one[1], other[1])) if one is not None and other is not None else one or other
