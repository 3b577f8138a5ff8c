"""Shared limits: a bucket in Redis, which grants permits for sends, and slots, of which each send takes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Command, Now, plain
from delayq.store.keys import Keys

__all__ = [
    "MOST_SLOTS",
    "Granted",
    "SlotRequest",
    "Spending",
    "Spent",
    "spend",
    "spend_all",
    "spent",
    "take_slots",
    "taken_slots",
]

#: The maximum number of slots that one request takes, and that it returns.
MOST_SLOTS: Final = 1_000


class Granted(msgspec.Struct, frozen=True):
    """The messages that may be sent now, and the ms until another one may, or until all may. 0 if all may, or if the
    request came too late.

    `now` is the time of its server (Unix ms). `version` is that of newer policies than the caller's: then nothing was
    granted.
    """

    count: int
    wait: int
    now: int = 0
    version: str = ""


class Spent(msgspec.Struct, frozen=True):
    """The number of permits granted in `second` (Unix time) so far, and in the second before."""

    second: int
    count: int
    before: int

    def last_second(self, now: int) -> int:
        """Return the number in the full second before `now` (Unix ms)."""
        return {0: self.before, 1: self.count}.get(now // 1000 - self.second, 0)


class Spending(msgspec.Struct, frozen=True):
    """Take what the bucket of this name has of the `wanted` messages: `burst` at most, and `rate` a second after that.

    Nothing is granted after `until`, by the clock of the server (Unix ms), nor after a request under a newer `version` of the
    policies.
    """

    name: str
    rate: float
    burst: float
    wanted: int
    until: int | None = None
    version: str = ""

    @property
    def written(self) -> str:
        """As the script reads it."""
        until = "-" if self.until is None else self.until
        return f"{self.rate!r} {self.burst!r} {self.wanted} {until} {self.version or '-'}"


def spend_all(keys: Keys, spendings: Sequence[Spending], *, now: Now = "") -> Command[list[Granted]]:
    """Spend from several buckets, which lie on one server and, in a Redis Cluster, in one slot."""
    names = [keys.rate(one.name) for one in spendings]
    return Command("spend", names, (now, "", *(one.written for one in spendings)), _read_granted)


def spend(
    keys: Keys,
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
    """Spend from one bucket. `whole`: all of them or none."""
    written = Spending(name, rate, burst, wanted, until, version).written
    return Command(
        "spend", (keys.rate(name),), (now, "1" if whole else "", written), lambda reply: _read_granted(reply)[0]
    )


def _read_granted(reply: list[Any]) -> list[Granted]:
    now = reply[0]
    return [
        Granted(count, wait, now, version.decode())
        for count, wait, version in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
    ]


def spent(keys: Keys, name: str) -> Command[Spent]:
    """Read the permits that this bucket granted."""

    def read(reply: list[Any]) -> Spent:
        fields = (reply[0] or b"").split(b" ")
        return Spent(*map(int, fields[1:4])) if len(fields) == 5 else Spent(0, 0, 0)

    return plain("MGET", keys.rate(name), read=read)


class SlotRequest(msgspec.Struct, frozen=True):
    """Return the slots `given` of this name, of which there are `most`, and take `wanted` others for `life` ms.

    Their names are those of `taken_slots`. `call` is never used for another call.
    """

    name: str
    most: int
    life: int
    wanted: int
    call: str
    given: Sequence[str] = ()

    @property
    def written(self) -> str:
        """As the script reads it."""
        return " ".join([f"{self.most} {self.life} {self.wanted} {self.call}:{self.life}", *self.given])


def take_slots(keys: Keys, requests: Sequence[SlotRequest], *, now: Now = "") -> Command[list[int]]:
    """Return and take slots of several limits, as with `spend_all`. Returns the number taken of each."""
    names = [keys.slots(one.name) for one in requests]
    return Command("take_slots", names, (now, *(one.written for one in requests)), list)


def taken_slots(life: int, call: str, count: int) -> list[str]:
    """Return the names of the slots that a call has taken."""
    return [f"{call}:{life}:{place}" for place in range(1, count + 1)]
