"""Dead letters: listed, put back, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.codec import Record
from delayq.store.commands.command import RETENTION, Command, Now, Retention, allowed, texts
from delayq.store.commands.reading import read_reason, read_record
from delayq.store.keys import QueueKeys

__all__ = ["After", "DeadLetter", "dead_letters", "deaths", "discard", "letters", "redrive"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up: when (Unix ms), after how many attempts, and why."""

    id: str
    queue: int
    buried: int
    attempts: int
    reason: str
    record: Record | None


#: The (time, id) of the last one seen; (time, '') is from that time on.
After = tuple[int, str]


def dead_letters(keys: QueueKeys, limit: int, after: After | None = None) -> Command[list[DeadLetter]]:
    """A page of one queue's dead letters, oldest first, behind the (time, id) of the last one seen."""

    def read(reply: list[Any]) -> list[DeadLetter]:
        return [_letter(keys, id.decode(), buried, raw, text) for id, buried, raw, text in reply]

    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), _page(limit, after, False, "1"), read)


def letters(keys: QueueKeys, ids: Sequence[str]) -> Command[list[DeadLetter | None]]:
    """One queue's dead letters of these ids; None for what is none."""

    def read(reply: list[Any]) -> list[DeadLetter | None]:
        return [_letter(keys, id, *one) if one else None for id, one in zip(ids, reply, strict=True)]

    return Command("letters", (keys.pool, keys.dead, keys.reasons), ids, read)


def _letter(keys: QueueKeys, id: str, buried: bytes, raw: bytes, text: bytes) -> DeadLetter:
    _, tries, why = read_reason(text)
    return DeadLetter(id=id, queue=keys.number, buried=int(buried), attempts=tries, reason=why, record=read_record(raw))


def deaths(keys: QueueKeys, limit: int, after: After | None = None, *, newest: bool = False) -> Command[list[After]]:
    """The times and ids alone of a page of dead letters, oldest or `newest` first."""

    def read(reply: list[Any]) -> list[After]:
        return [(int(buried), id.decode()) for id, buried in reply]

    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), _page(limit, after, newest, ""), read)


def _page(limit: int, after: After | None, newest: bool, whole: str) -> tuple[int | str, ...]:
    time, id = after if after is not None else ("", "")
    return limit, time, id, "newest" if newest else "oldest", whole


def redrive(
    keys: QueueKeys, ids: Sequence[str], *, topics: Sequence[str] | None = None, now: Now = ""
) -> Command[list[str]]:
    """Put dead letters back, due now: 'scheduled', 'not_dead', 'corrupt' or 'moved' of each."""
    return Command(
        "redrive",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.dead, keys.reasons),
        (now, keys.wake, *allowed(ids, topics)),
        texts,
    )


def discard(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[bool | None]]:
    """Delete dead letters for good; False for what is and was none, None for what has moved."""
    return Command(
        "discard",
        (keys.state, keys.pool, keys.attempts, keys.index, keys.dead, keys.reasons, keys.final),
        (now, retention.window, retention.most, *allowed(ids, topics)),
        lambda reply: [None if removed < 0 else bool(removed) for removed in reply],
    )
