"""Schedule, cancel and reschedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, allowed, texts
from delayq.store.keys import QueueKeys

__all__ = ["Answers", "cancel", "reschedule", "schedule"]


class Answers(msgspec.Struct, frozen=True, gc=False):
    """Of one `schedule`: the time, and status and due of those that were not scheduled just so, by index."""

    now: int
    others: dict[int, tuple[str, int | None]]


def _read_schedule(reply: list[Any]) -> Answers:
    others = {
        reply[i]: (reply[i + 1].decode(), int(reply[i + 2]) if reply[i + 2] else None) for i in range(1, len(reply), 3)
    }
    return Answers(int(reply[0]), others)


def schedule(
    keys: QueueKeys,
    kinds: str,
    ids: Sequence[str],
    bodies: Sequence[bytes],
    *,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[Answers]:
    """Schedule up to 500 messages of one queue.

    Each has a kind, 'a' (at) or 'r' (after), in upper case if the caller gave the id; an id; and a body, its content
    with `codec.due_head` of its due or delay (ms) before it.
    """
    args: list[Arg] = [now, keys.wake, retention.window, retention.short, kinds, *ids, *bodies]
    names = (keys.state, keys.queue, keys.pool, keys.index, keys.final, keys.dead)
    return Command("schedule", names, args, _read_schedule)


def cancel(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[str]]:
    """Cancel messages of one queue: how each went, or 'moved'; see `Cancelled`."""
    return Command(
        "cancel",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final, keys.dead),
        (now, retention.window, retention.most, *allowed(ids, topics)),
        texts,
    )


def reschedule(
    keys: QueueKeys,
    id: str,
    spec: str,
    *,
    topic: str | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[tuple[str, int | None]]:
    """Give a message another due: ('scheduled', due), or why not and None."""
    return Command(
        "reschedule",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead),
        (now, keys.wake, retention.window, retention.short, spec, *allowed([id], None if topic is None else [topic])),
        lambda reply: (reply[0].decode(), int(reply[1]) if len(reply) > 1 else None),
    )
