"""Rates that many share: a bucket in Redis, which tells who may hand out how many messages now."""

from __future__ import annotations

from typing import Any

import msgspec

from delayq.store.commands.command import Command, Now, number, plain
from delayq.store.keys import rate_key

__all__ = ["Granted", "Spent", "spend", "spent"]


class Granted(msgspec.Struct, frozen=True):
    """How many messages may go now, and in how many ms one more may, or all that were wanted."""

    count: int
    wait: int


class Spent(msgspec.Struct, frozen=True):
    """How many were granted in `second` (Unix time) so far, and how many in the one before."""

    second: int
    count: int
    before: int

    def last_second(self, now: int) -> int:
        """How many were in the whole second before `now` (Unix ms)."""
        return {0: self.before, 1: self.count}.get(now // 1000 - self.second, 0)


def spend(name: str, rate: float, burst: int, wanted: int, *, whole: bool = False, now: Now = "") -> Command[Granted]:
    """Take what the bucket of this name has of the `wanted` messages: `burst` at most, and `rate` a second after that.

    `whole`: all of them or none.
    """
    args = (now, repr(rate), burst, wanted, "1" if whole else "")
    return Command("spend", (rate_key(name),), args, lambda reply: Granted(*reply))


def spent(name: str) -> Command[Spent]:
    """What has been granted of this bucket."""

    def read(reply: list[Any]) -> Spent:
        return Spent(*map(number, reply))

    return plain("HMGET", rate_key(name), "second", "spent", "before", read=read)
