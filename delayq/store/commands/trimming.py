"""The commands that trim streams in delayq's own Redis, and remember which topics have such streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from delayq.store.commands.command import Command, Now, plain
from delayq.store.keys import Keys

__all__ = ["Trimmed", "forget_trimmed", "remember_trimmed", "trim", "trimmed_topics"]


class Trimmed(msgspec.Struct, frozen=True):
    """The result of a step: the entries that it removed, whether another step can remove more, and whether the stream exists.

    `last` is the id of the last entry that was appended, if the step may remove none.
    """

    removed: int
    more: bool
    exists: bool = True
    last: str = "0-0"


def trim(
    stream: str,
    age: int | None,
    length: int | None,
    most: int,
    *,
    force: bool = False,
    upto: str = "",
    groups: Iterable[str] = (),
    now: Now = "",
) -> Command[Trimmed]:
    """Remove at most `most` entries that are older than `age` (ms), or that exceed `length`.

    Without `force`, only entries that every consumer group has acknowledged are removed, and none of a stream without groups.
    `groups` are the recorded ones, and `upto` is the last entry from before they were read.
    """

    def read(reply: list[Any]) -> Trimmed:
        return Trimmed(max(reply[0], 0), reply[1] == b"1", reply[0] >= 0, reply[2].decode())

    bounds = ("" if age is None else age, "" if length is None else length)
    return Command("trim", (stream,), (now, *bounds, "1" if force else "0", most, upto, *groups), read)


def remember_trimmed(keys: Keys, topics: Mapping[str, int]) -> Command[None]:
    """Remember topics whose streams are trimmed, each with the time of a delivery (Unix ms)."""
    pairs = [word for topic, at in topics.items() for word in (topic, at)]
    return plain("HSET", keys.trimmed, *pairs, read=lambda _: None)


def trimmed_topics(keys: Keys, cursor: str, look: int) -> Command[tuple[str, list[str]]]:
    """Read a page of about `look` remembered topics: the cursor of the next page ('0': this was the last), and their names."""

    def read(reply: list[Any]) -> tuple[str, list[str]]:
        return reply[0].decode(), [name.decode(errors="replace") for name in reply[1][::2]]

    return plain("HSCAN", keys.trimmed, cursor, "COUNT", look, read=read)


def forget_trimmed(keys: Keys, topics: list[str]) -> Command[None]:
    """Forget topics that have no stream."""
    return plain("HDEL", keys.trimmed, *topics, read=lambda _: None)
