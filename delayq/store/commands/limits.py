"""Limits that many share: a bucket in Redis, which tells who may hand out how many messages now, and slots, of which each
message takes one while it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Command, Now, plain
from delayq.store.keys import rate_key, slots_key

__all__ = ["MOST_SLOTS", "Granted", "Spent", "spend", "spent", "take_slots", "taken_slots"]

#: No call takes or gives back more than so many slots.
MOST_SLOTS: Final = 1_000


class Granted(msgspec.Struct, frozen=True):
    """How many messages may go now, and in how many ms one more may, or all that were wanted; 0 if all may, or if the request
    came too late. `now` is the time of its server (Unix ms).

    `version` is that of newer policies than the caller's: then nothing was granted.
    """

    count: int
    wait: int
    now: int = 0
    version: str = ""


class Spent(msgspec.Struct, frozen=True):
    """How many were granted in `second` (Unix time) so far, and how many in the one before."""

    second: int
    count: int
    before: int

    def last_second(self, now: int) -> int:
        """How many were in the whole second before `now` (Unix ms)."""
        return {0: self.before, 1: self.count}.get(now // 1000 - self.second, 0)


def spend(
    name: str,
    rate: float,
    burst: float,
    wanted: int,
    *,
    whole: bool = False,
    until: int | None = None,
    version: str = "",
    now: Now = "",
) -> Command[Granted]:
    """Take what the bucket of this name has of the `wanted` messages: `burst` at most, and `rate` a second after that.

    `whole`: all of them or none. Nothing is granted after `until`, by the clock of the server (Unix ms),
    nor after a request under a newer `version` of the policies.
    """
    args = (now, repr(rate), repr(burst), wanted, "1" if whole else "", "" if until is None else until, version)
    return Command("spend", (rate_key(name),), args, _read_granted)


def _read_granted(reply: list[Any]) -> Granted:
    count, wait, now, version = reply
    return Granted(count, wait, now, version.decode())


def spent(name: str) -> Command[Spent]:
    """What has been granted of this bucket."""

    def read(reply: list[Any]) -> Spent:
        fields = (reply[0] or b"").split(b" ")
        return Spent(*map(int, fields[1:4])) if len(fields) == 5 else Spent(0, 0, 0)

    return plain("MGET", rate_key(name), read=read)


def take_slots(
    name: str, most: int, life: int, wanted: int, call: str, given: Sequence[str] = (), *, now: Now = ""
) -> Command[int]:
    """Give slots of this name back, of which there are `most`, and take others for `life` ms; how many were taken.

    They are named as `taken_slots` says. `call` is never used for another one.
    """
    return Command("take_slots", (slots_key(name),), (now, most, life, wanted, f"{call}:{life}", *given), int)


def taken_slots(life: int, call: str, count: int) -> list[str]:
    """The names of so many slots that a call has taken."""
    return [f"{call}:{life}:{place}" for place in range(1, count + 1)]
