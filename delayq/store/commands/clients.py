"""What callers ask for: schedule, cancel, reschedule; dead letters listed, put back, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from delayq.codec import Record
from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, allowed, words
from delayq.store.commands.reading import read_reason, read_record
from delayq.store.keys import QueueKeys
from delayq.words import shown

__all__ = [
    "After",
    "Answers",
    "Brief",
    "DeadLetter",
    "cancel",
    "dead_briefs",
    "dead_letters",
    "deaths",
    "deliver_now",
    "discard",
    "letters",
    "redrive",
    "reschedule",
    "schedule",
]

T = TypeVar("T")


class Answers(msgspec.Struct, frozen=True, gc=False):
    """Of one `schedule`: the time, and status and due of those that were not scheduled just so, by index.

    Or, in `policies`, the later version that the queue has: nothing was done.
    """

    now: int
    others: dict[int, tuple[str, int | None]]
    policies: str = ""


def _read_schedule(reply: list[Any]) -> Answers:
    if len(reply) == 2:
        return Answers(int(reply[0]), {}, reply[1].decode())
    others = {
        reply[i]: (shown(reply[i + 1].decode()), int(reply[i + 2]) if reply[i + 2] else None)
        for i in range(1, len(reply), 3)
    }
    return Answers(int(reply[0]), others)


def schedule(
    keys: QueueKeys,
    kinds: str,
    ids: Sequence[str],
    bodies: Sequence[bytes],
    *,
    policies: str = "",
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[Answers]:
    """Schedule up to 500 messages of one queue, which follow the `policies` of this version.

    Each has a kind, 'a' (at) or 'r' (after), in upper case if the caller gave the id, and the next letter if it is to be
    scheduled again though it was cancelled for certain; an id; and a body, its content with `codec.due_head` of its due or delay
    (ms) before it.
    """
    args: list[Arg] = [now, keys.wake, retention.window, retention.short, policies, kinds, *ids, *bodies]
    names = (keys.state, keys.queue, keys.pool, keys.index, keys.final, keys.dead, keys.ended)
    return Command("schedule", names, args, _read_schedule)


def _noting(entry: str, changed: list[str] | None, read: Callable[[list[Any]], T]) -> Callable[[list[Any]], T]:
    """A reader of what a script answers that writes an `entry`: behind all else comes what of it is written down."""

    def read_both(reply: list[Any]) -> T:
        _take_noted(reply[-1], changed)
        return read(reply[:-1])

    return read_both if entry else read


def _take_noted(lines: list[bytes], changed: list[str] | None) -> None:
    if changed is not None:
        changed += (line.partition(b"\0")[0].decode() for line in lines)


def cancel(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    free: bool = False,
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[str]]:
    """Cancel messages of one queue: how each went, or 'moved'; see `Cancelled`.

    With `free` anybody may schedule an id again whose message was cancelled for certain.
    `entry` is for the audit; the ids of what is written down there are put into `changed`.
    """
    return Command(
        "cancel",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.index,
            keys.final,
            keys.dead,
            keys.audit,
            keys.ended,
        ),
        (now, retention.window, retention.most, "1" if free else "", entry, *allowed(ids, topics)),
        _noting(entry, changed, words),
    )


def reschedule(
    keys: QueueKeys,
    id: str,
    spec: str,
    *,
    topic: str | None = None,
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[tuple[str, int | None]]:
    """Give a message another due: ('scheduled', due), or why not and None. `entry` is for the audit; see `cancel`."""

    def read(reply: list[Any]) -> tuple[str, int | None]:
        result, *due_and_noted = reply
        for lines in due_and_noted[1:]:
            _take_noted(lines, changed)
        return shown(result.decode()), int(due_and_noted[0]) if due_and_noted else None

    return Command(
        "reschedule",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead, keys.audit, keys.calls),
        (
            now,
            keys.wake,
            retention.window,
            retention.short,
            spec,
            entry,
            *allowed([id], None if topic is None else [topic]),
        ),
        read,
    )


def deliver_now(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    force: bool = False,
    held: Sequence[str] = (),
    topics: Sequence[str] | None = None,
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[tuple[str, int | None]]]:
    """Have messages delivered now: of each ('scheduled', due), or why not and None. `held` are the topics that they may be
    held for; with `force` what is held goes, too. `entry` is for the audit."""
    names = (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead, keys.audit, keys.calls)
    return Command(
        "deliver_now",
        (*names, *(keys.held(topic) for topic in held)),
        (now, keys.wake, retention.window, "1" if force else "", entry, *allowed(ids, topics)),
        _noting(
            entry,
            changed,
            lambda reply: [(shown(one[0].decode()), int(one[1]) if len(one) > 1 else None) for one in reply],
        ),
    )


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


class Brief(msgspec.Struct, frozen=True):
    """A dead letter without its record: of what topic ('' if that cannot be read) it died when, and why."""

    id: str
    buried: int
    topic: str
    reason: str


def dead_briefs(keys: QueueKeys, limit: int, after: After | None = None) -> Command[list[Brief]]:
    """A page of one queue's dead letters, the newest first, without their records."""

    def read(reply: list[Any]) -> list[Brief]:
        return [
            Brief(id.decode(), int(buried), topic.decode(errors="replace"), read_reason(text)[2])
            for id, buried, topic, text in reply
        ]

    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), _page(limit, after, True, "brief"), read)


def _page(limit: int, after: After | None, newest: bool, whole: str) -> tuple[int | str, ...]:
    time, id = after if after is not None else ("", "")
    return limit, time, id, "newest" if newest else "oldest", whole


def redrive(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[str]]:
    """Put dead letters back, due now: 'scheduled', 'notDead', 'corrupt' or 'moved' of each."""
    return Command(
        "redrive",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.dead, keys.reasons, keys.audit, keys.calls, keys.final),
        (now, keys.wake, retention.window, entry, *allowed(ids, topics)),
        _noting(entry, changed, words),
    )


def discard(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[bool | None]]:
    """Delete dead letters for good; False for what is and was none, None for what has moved."""
    return Command(
        "discard",
        (
            keys.state,
            keys.pool,
            keys.attempts,
            keys.index,
            keys.dead,
            keys.reasons,
            keys.final,
            keys.audit,
            keys.ended,
        ),
        (now, retention.window, retention.most, entry, *allowed(ids, topics)),
        _noting(entry, changed, lambda reply: [None if removed < 0 else bool(removed) for removed in reply]),
    )
