"""Dead letters: listed, put back, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.codec import Record
from delayq.store.commands.command import RETENTION, Command, Now, Retention, allowed, texts
from delayq.store.commands.reading import read_reason, read_record
from delayq.store.keys import QueueKeys

__all__ = ["DeadLetter", "dead_letters", "discard", "redrive"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up: when (Unix ms), after how many attempts, and why."""

    id: str
    queue: int
    buried: int
    attempts: int
    reason: str
    record: Record | None


def dead_letters(keys: QueueKeys, limit: int, after: tuple[int, str] | None = None) -> Command[list[DeadLetter]]:
    """A page of one queue's dead letters, oldest first, behind the (time, id) of the last one seen."""

    def read(reply: list[Any]) -> list[DeadLetter]:
        letters = []
        for id, buried, raw, text in reply:
            _, tries, why = read_reason(text)
            letter = DeadLetter(
                id=id.decode(), queue=keys.number, buried=int(buried), attempts=tries, reason=why,
                record=read_record(raw),
            )  # fmt: skip
            letters.append(letter)
        return letters

    time, id = after if after is not None else ("", "")
    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), (limit, time, id), read)


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
