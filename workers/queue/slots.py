"""The slots that a node has of those in Redis: each message of a topic of which only so many are sent at a time has one while
it is sent.

Pull jobs say what they want, take slots and give them back, in their own threads; who asks Redis asks here for whom. A slot
that was given back is handed out again for a short while, and goes back to Redis then, so that other nodes have a chance.
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
from workers.sending.message import Slot

__all__ = ["JobSlots", "SlotAsk", "SlotPool"]

#: ms for which a slot is handed out, again and again; and for which it is taken besides the longest send: until a message
#: goes that has been handed over, and until who looks for hung sends has given it up.
HANDED_OUT: Final = 400
BESIDES: Final = 1_500
#: ms between two asks, at least; the longest between giving some back and taking others while there are too few; after an
#: error; and after which slots that nobody uses or wants are asked for no more.
EVERY: Final = 50
APART: Final = 40
AFTER_ERROR: Final = 1_000
IDLE: Final = 1_000
#: ms for which a job that says nothing more is believed.
BELIEVED: Final = 3_000


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
    free: list[Slot] = []
    given: list[tuple[str, int]] = []
    used: int = 0  # since they were asked for last
    used_at: int = 0  # monotonic ms
    ask_at: int = 0  # not before
    short: bool = False  # there were fewer than were wanted

    def sweep(self, now: int) -> None:
        """Give back what was not handed out in time, and forget what is free by itself."""
        self.given += [(slot.name, slot.expires) for slot in self.free if slot.until <= now]
        self.free = [slot for slot in self.free if slot.until > now]
        self.given = [one for one in self.given if one[1] > now]


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
                known.sweep(now)
                wants = sum(count for _, count in self.wants(name, now))
                if known.used or wants:
                    known.used_at = now
                wanted = wants + (0 if known.short else known.used)
                wanted = min(wanted, known.slots.most, MOST_SLOTS) - len(known.free)
                wanted = 0 if self._closed else max(0, wanted)
                if now >= known.ask_at and (wanted or known.given):
                    found.append(self._ask(known, wanted, now))
                    at = now + EVERY
                elif wanted or known.given:
                    at = known.ask_at
                elif known.free:
                    at = min(slot.until for slot in known.free)
                elif now - known.used_at >= IDLE:
                    del self.known[name]
                    continue
                else:
                    at = known.used_at + IDLE
                again = at if again is None else min(again, at)
            self._comes_at = again
        return found, again

    def _ask(self, known: _Known, wanted: int, now: int) -> SlotAsk:
        given, known.given = known.given[:MOST_SLOTS], known.given[MOST_SLOTS:]
        known.used, known.ask_at = 0, now + EVERY
        if given and known.short:  # others wait for them, perhaps: they are not taken again in the same moment
            wanted, known.ask_at = 0, now + random.randint(1, APART)
        self._calls += 1
        return SlotAsk(known.slots, known.life, wanted, f"{self._maker}:{self._calls}", given)

    def wants(self, name: str, now: int) -> list[tuple[JobSlots, int]]:
        """The jobs that have messages aside, each with how many, the lowest first; under the lock."""
        found = [
            (want[1], place, want[0])
            for place, job in enumerate(self.jobs)
            if now - job.said_at < BELIEVED and (want := job.wanted.get(name)) is not None
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
            known.free += [Slot(ask.slots, name, until, expires) for name in names]
            woken = self._served(known, asked_at)
        for job in woken:
            job.wake()

    def put_off(self, ask: SlotAsk, asked_at: int) -> None:
        """Nobody knows what became of an ask: what it may have taken is given back, as what it gave back is again."""
        expires = asked_at + ask.life
        with self.lock:
            known = self._know(ask.slots.name, ask.slots, ask.life)
            known.given += [*ask.given, *((name, expires) for name in taken_slots(ask.life, ask.call, ask.wanted))]
            known.ask_at = asked_at + AFTER_ERROR

    def close(self) -> None:
        """Take none any more; the next asks give back what is there."""
        with self.lock:
            self._closed = True
            for known in self.known.values():
                known.free = [msgspec.structs.replace(slot, until=0) for slot in known.free]
                known.ask_at = 0

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
        found, left = [], sum(1 for slot in known.free if slot.until > now)
        for job, count in self.wants(known.slots.name, now):
            if left <= 0:
                break
            found.append(job)
            left -= count
        return found

    def free_for(self, job: JobSlots | None, slots: Slots, now: int) -> int:
        """How many are there for what this job holds, after those that hold something lower; None: for what nobody holds."""
        known = self.known.get(slots.name)
        if known is None:
            return 0
        left = sum(1 for slot in known.free if slot.until > now)
        for other, count in self.wants(slots.name, now):
            if other is job:
                break
            left -= count
        return max(0, left)

    def put_back(self, slots: Iterable[Slot], now: int) -> tuple[list[JobSlots], bool]:
        """They are handed out again, or go back to Redis; the jobs that may go on, and whether to hurry."""
        freed, hurry = dict[str, _Known](), False
        for slot in slots:
            known = self._know(slot.slots.name, slot.slots, slot.expires - slot.until + HANDED_OUT)
            if slot.until > now and not self._closed:
                known.free.append(slot)
                freed[slot.slots.name] = known
                at = slot.until
            else:
                known.given.append((slot.name, slot.expires))
                at = known.ask_at
            if self._comes_at is None or self._comes_at > at:
                self._comes_at, hurry = at, True
        return [job for known in freed.values() for job in self._served(known, now)], hurry


class JobSlots:
    """What one pull job has of it. `now` is always monotonic ms."""

    def __init__(self, pool: SlotPool, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._pool = pool
        self.wanted: Mapping[str, tuple[int, Head]] = {}
        self.said_at = 0
        with pool.lock:
            pool.jobs.append(self)

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

    def may_bring_back(self, slots: Slots, now: int) -> int:
        """How many messages of what stands aside may come back now."""
        with self._pool.lock:
            return self._pool.free_for(self, slots, now)

    def spare(self, slots: Slots, now: int) -> bool:
        """Whether there is something besides what is for messages that stand aside."""
        with self._pool.lock:
            return self._pool.free_for(None, slots, now) > 0

    def take(self, slots: Slots, most: int, longest: int, now: int) -> list[Slot]:
        """At most so many of them, for sends that may take so long."""
        with self._pool.lock:
            known = self._pool.use(slots, longest + BESIDES, now)
            good = [slot for slot in known.free if slot.until > now and slot.until + longest <= slot.expires]
            taken = set(good[:most])
            known.free = [slot for slot in known.free if slot not in taken]
            known.used += len(taken)
            return good[:most]

    def give_back(self, slots: Sequence[Slot], now: int) -> None:
        """They are not used any more."""
        with self._pool.lock:
            woken, hurry = self._pool.put_back(slots, now)
        for job in woken:
            if job is not self:  # it is at it
                job.wake()
        if hurry:
            self._pool.hurry()

    def close(self) -> None:
        """The job has ended; again is harmless."""
        with self._pool.lock:
            self._pool.jobs = [job for job in self._pool.jobs if job is not self]
