"""Brings parked messages back: of targets that take them again, of ordering keys with few in memory, of routes that
are gone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from delayq.store import commands
from delayq.store.commands import Command, Unparked
from delayq.store.keys import QueueKeys
from workers.dispatch import NO_ROUTE, UNKNOWN_HEAD, Dispatch

__all__ = ["Unparking"]

RAMP_FROM, RAMP_TO = 16, 500
KEYS_AT_ONCE = 8
ORPHANS_AT_ONCE = 4
LOWEST_FIRST = 3  # probes of the lowest before others are tried
_Name = str


class Unparking:
    """What of one queue is parked, and how much of it comes back in this tick."""

    def __init__(self, keys: QueueKeys, epoch: str, parked: Sequence[_Name], dispatch: Dispatch) -> None:
        self._keys = keys
        self._epoch = epoch
        self._dispatch = dispatch
        self._ramp: dict[_Name, int] = {}
        self._probed: dict[_Name, int] = {}  # how often since it was parked
        for name in parked:
            dispatch.parked[name] = UNKNOWN_HEAD
        self._orphaned = [name for name in parked if name.startswith("t:") and name[2:] not in dispatch.submitted]
        dispatch.keys_to_unpark.update(name for name in parked if name.startswith("k:"))

    @property
    def before_pulls(self) -> bool:
        """Whether pulls have to wait: what has no route now either would be parked again before all came back."""
        return NO_ROUTE in self._orphaned

    def commands(self) -> list[tuple[_Name, Command[Unparked | None]]]:
        """What to run now."""
        work = self._dispatch
        wanted = [(name, RAMP_TO, 0.0) for name in self._orphaned for _ in range(ORPHANS_AT_ONCE)]
        # What came back and was not pulled yet takes room too: no more before that.
        for name in [name for name in work.parked if name.startswith("t:") and not work.flight.offset.unread]:
            if name == NO_ROUTE:
                continue
            probing = work.probing(name)
            if probing:
                self._ramp[name] = RAMP_FROM // 2  # it begins anew when the target takes messages again
            if limit := work.may_come_back(name, self._ramp.get(name, RAMP_FROM)):
                wanted.append((name, limit, self._begin(name) if probing else 0.0))
        for _ in range(min(KEYS_AT_ONCE, len(work.keys_to_unpark))):
            name = work.keys_to_unpark.pop()
            if name in work.parked:
                wanted.append((name, RAMP_FROM, 0.0))
        return [(name, commands.unpark(self._keys, self._epoch, name, limit, begin)) for name, limit, begin in wanted]

    def _begin(self, name: _Name) -> float:
        """Where to take probes from: the lowest, but after some that failed every other time from anywhere.

        A few messages that never get through would keep all others parked else.
        """
        self._probed[name] = self._probed.get(name, 0) + 1
        return random.random() if self._probed[name] > LOWEST_FIRST and self._probed[name] % 2 else 0.0

    def take(self, name: _Name, answer: Unparked) -> None:
        """Note what came back."""
        work = self._dispatch
        self._ramp[name] = min(RAMP_TO, 2 * self._ramp.get(name, RAMP_FROM))
        if answer.lowest is not None:
            work.flight.offset.rewind(answer.lowest)
        if answer.head is None:
            work.parked.pop(name, None)
            self._ramp.pop(name, None)
            self._probed.pop(name, None)
            if name in self._orphaned:
                self._orphaned.remove(name)
        else:
            work.parked[name] = answer.head
            if name.startswith("k:") and answer.moved == 0:
                work.keys_to_unpark.add(name)
