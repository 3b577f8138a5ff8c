"""A concurrency limit: slots in Redis. Each send has one.

A free slot is used again for a while. Then it goes back to Redis, so that other nodes get slots.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from delayq.domain.policies import Slots
from delayq.store.commands import MOST_SLOTS, SlotRequest, taken_slots
from delayq.store.keys import Keys
from workers.limits.limit import IDLE, Limit

#: A node uses a slot repeatedly for USED_AGAIN ms. Redis keeps it BESIDES ms longer than the longest send lasts. A send begins
#: after the request, and a hung send is given up late.
USED_AGAIN: Final = 800
BESIDES: Final = 1_500
#: ms between two requests, about. While slots are short, others are taken within EVERY ms after a slot is given back.
EVERY: Final = 50
#: Makes the names of this process's slots unique.
_MAKER: Final = secrets.token_hex(8)


class _Slot(NamedTuple):
    """A slot. A send may begin with it before `until`; Redis keeps it until it `expires` (monotonic ms)."""

    expires: int
    until: int
    name: str


class SlotLimit(Limit):
    """The slots of one name."""

    lasts = True

    def __init__(self, slots: Slots, keys: Keys, soon: Callable[[Limit, int], None], now: int = 0) -> None:
        super().__init__(slots.name, keys.slots(slots.name), soon, now)
        self._slots = slots
        self._life = 0  # ms for which slots are taken
        self._free: list[_Slot] = []
        self._in_use: list[_Slot] = []  # a heap
        self._given: list[_Slot] = []  # to give back
        self._used = 0  # number of slots used after the last request
        self._useful = 0  # number of slots that the last request could have used
        self._short = False  # whether there were fewer
        self._contended = False  # whether the last request got too few, because other nodes have some
        self._gave = False  # whether the last request only gave slots back
        # The last request: the number of slots, their life, its name, and the slots that it gave back.
        self._last: tuple[int, int, str, Sequence[_Slot]] = 0, 0, "", ()
        self._calls = 0
        self._closed = False

    def update(self, slots: Slots, version: str, longest: int) -> None:
        """Use newer policies, for sends of at most `longest` ms."""
        with self.lock:
            self._life = max(self._life, longest + BESIDES)
            if version > self.version:
                self._short = self._short and slots == self._slots
                self.version, self._slots = version, slots

    def _is_unused(self, now: int) -> bool:
        return not (self._in_use or self._free or self._given) and super()._is_unused(now)

    def _had_too_few(self, now: int) -> bool:
        """See `Limit`."""
        return self._short

    # -- slots -------------------------------------------------------------------------------------------------------

    def _count_permits(self, now: int) -> int:
        """Give back the slots that were not used in time, and return the number of the others."""
        if over := [slot for slot in self._free if slot.until <= now]:
            self._given += over
            self._free = [slot for slot in self._free if slot.until > now]
        return len(self._free)

    def _take(self, count: int, longest: int, now: int) -> int:
        if not self._count_permits(now):
            return 0
        taken, free = list[_Slot](), list[_Slot]()
        for slot in self._free:
            (taken if len(taken) < count and slot.until + longest <= slot.expires else free).append(slot)
        self._free = free
        for slot in taken:
            heappush(self._in_use, slot)
        self._used += len(taken)
        return len(taken)

    def end(self, count: int, now: int) -> None:
        """Note that `count` sends have ended. Other sends begin with their slots."""
        with self.lock:
            for _ in range(min(count, len(self._in_use))):
                # The slot that expires first. Any send may use any slot, so the other sends keep those that last longer.
                slot = heappop(self._in_use)
                (self._free if slot.until > now and not self._closed else self._given).append(slot)
            called = self._call(now)
            again = now if self._given else min([slot.until for slot in self._free], default=now + EVERY)
        self._soon(self, max(self._not_before, again))
        for listener in called:
            listener.limits_have_more([self])

    def close(self) -> None:
        """Take no more slots. The next request gives all slots back."""
        with self.lock:
            self._closed, self._not_before = True, 0
            self._given, self._free = self._given + self._free, []

    # -- for its asker -----------------------------------------------------------------------------------------------

    def _request(self, wanted: int, now: int, server_ahead: int | None) -> tuple[SlotRequest | None, int | None]:
        """See `Limit`. If slots are short, requests give slots back and take others in turn, with a random pause between.

        Otherwise the node would get the same slots back each time.
        """
        free = self._count_permits(now)
        # Redis has removed the others already.
        held = [slot for slot in self._given if slot.expires > now]
        given = held[:MOST_SLOTS]
        useful = 0 if self._closed else wanted + (0 if self._contended else self._used)
        wanted = max(0, min(useful, self._slots.most, MOST_SLOTS) - free)
        if not wanted and not given:
            self._requested = False
            again = now + EVERY if self._turns else min([slot.until for slot in self._free], default=now)
            return None, again if again > now else now + IDLE if not self._is_unused(now) else None
        if now < self._not_before:
            return None, self._not_before
        self._not_before = now + EVERY
        if self._contended and given and not self._gave:
            wanted, self._not_before, self._gave = 0, now + random.randint(1, EVERY), True
        elif self._contended and wanted:
            given, self._gave = [], False
        self._calls += 1
        self._last = wanted, self._life, f"{_MAKER}:{id(self)}:{self._calls}", given
        self._given = held[len(given) :]
        self._used, self._useful = 0, useful - free
        names = [slot.name for slot in given]
        return SlotRequest(self.name, self._slots.most, self._life, wanted, self._last[2], names), None

    def _use_answer(self, answer: Any, asked_at: int) -> int:
        """See `Limit`. After a lost reply, the slots that the request took are given back, and those that it gave back, again."""
        wanted, life, call, given = self._last
        heard = isinstance(answer, int)
        names = taken_slots(life, call, answer if heard else wanted)
        slots = [_Slot(asked_at + life, asked_at + USED_AGAIN, name) for name in names]
        if not heard:
            self._given += [*given, *slots]
            self._not_before, self._short, self._contended = asked_at + IDLE, True, True
        else:
            (self._given if self._closed else self._free).extend(slots)
            if wanted:
                self._contended, self._short = answer < wanted, answer < self._useful
        return self._not_before
