"""The operations of callers: schedule, cancel, reschedule; list, redrive and discard dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from delayq.domain.words import shown
from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, allowed, words
from delayq.store.commands.reading import Found, dead_letter, read_reason
from delayq.store.keys import QueueKeys

__all__ = [
    "After",
    "Answers",
    "Brief",
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
    """The reply to one `schedule`: the time, and by index the status and due time of messages that were not simply
    scheduled.

    Or, in `policies`, the later version of the queue: then nothing was done.
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
    """Schedule up to 500 messages of one queue, under the `policies` of this version.

    Each has a kind, an id and a body. The kind is 'a' (at) or 'r' (after), in upper case if the caller gave the id. The
    next letter is for a message that is scheduled although its id was certainly cancelled. The body is its content
    after `codec.due_head` of its due time or delay (ms).
    """
    args: list[Arg] = [now, keys.wake, retention.window, retention.short, policies, kinds, *ids, *bodies]
    names = (keys.state, keys.queue, keys.pool, keys.index, keys.final, keys.dead, keys.ended, keys.moves)
    return Command("schedule", names, args, _read_schedule)


def _noting(entry: str, changed: list[str] | None, read: Callable[[list[Any]], T]) -> Callable[[list[Any]], T]:
    """Return a reader of the reply of a script that writes an `entry`: the changed messages follow the other results."""

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
    by: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[str]]:
    """Cancel messages of one queue. Returns the result of each, or 'moved'; see `Cancelled`.

    With `free`, the id of a certainly cancelled message may be scheduled again by every caller. `entry` is for the
    audit; the ids in it are appended to `changed`. `by` is the name of the caller's API key.
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
            keys.moves,
        ),
        (now, retention.window, retention.most, "1" if free else "", entry, by, *allowed(ids, topics)),
        _noting(entry, changed, words),
    )


def reschedule(
    keys: QueueKeys,
    id: str,
    spec: str,
    *,
    topic: str | None = None,
    call: str = "",
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[tuple[str, int | None]]:
    """Change the due time of a message. Returns ('scheduled', due time), or the reason and None. `entry` is for the
    audit; see `cancel`. A repeated `call` gets the first answer.
    """

    def read(reply: list[Any]) -> tuple[str, int | None]:
        result, *due_and_noted = reply
        for lines in due_and_noted[1:]:
            _take_noted(lines, changed)
        return shown(result.decode()), int(due_and_noted[0]) if due_and_noted else None

    return Command(
        "reschedule",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead, keys.audit, keys.moves),
        (
            now,
            keys.wake,
            retention.window,
            retention.short,
            spec,
            entry,
            call,
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
    call: str = "",
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[tuple[str, int | None]]]:
    """Deliver messages now. Returns ('scheduled', due time) for each, or the reason and None.

    `held` are the topics that may hold them; with `force`, held messages are delivered too. `entry` is for the audit.
    """
    names = (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead, keys.audit, keys.moves)
    return Command(
        "deliver_now",
        (*names, *(keys.held(topic) for topic in held)),
        (now, keys.wake, retention.window, "1" if force else "", entry, call, *allowed(ids, topics)),
        _noting(
            entry,
            changed,
            lambda reply: [(shown(one[0].decode()), int(one[1]) if len(one) > 1 else None) for one in reply],
        ),
    )


#: The (time, id) of the last letter of the page; (time, '') means from that time on.
After = tuple[int, str]


def dead_letters(keys: QueueKeys, limit: int, after: After | None = None) -> Command[list[Found]]:
    """Read a page of one queue's dead letters, oldest first, after the (time, id) of the previous page."""

    def read(reply: list[Any]) -> list[Found]:
        return [dead_letter(id.decode(), keys.number, *one) for id, *one in reply]

    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), _page(limit, after, False, "1"), read)


def letters(keys: QueueKeys, ids: Sequence[str]) -> Command[list[Found | None]]:
    """Read one queue's dead letters with these ids; None for an id that is none."""

    def read(reply: list[Any]) -> list[Found | None]:
        return [dead_letter(id, keys.number, *one) if one else None for id, one in zip(ids, reply, strict=True)]

    return Command("letters", (keys.pool, keys.dead, keys.reasons), ids, read)


def deaths(keys: QueueKeys, limit: int, after: After | None = None, *, newest: bool = False) -> Command[list[After]]:
    """Read only the times and ids of a page of dead letters, oldest or `newest` first."""

    def read(reply: list[Any]) -> list[After]:
        return [(int(buried), id.decode()) for id, buried in reply]

    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), _page(limit, after, newest, ""), read)


class Brief(msgspec.Struct, frozen=True):
    """A dead letter without its record: its topic ('' if it cannot be read), the time of death, and the reason."""

    id: str
    buried: int
    topic: str
    reason: str


def dead_briefs(keys: QueueKeys, limit: int, after: After | None = None) -> Command[list[Brief]]:
    """Read a page of one queue's dead letters, newest first, without their records."""

    def read(reply: list[Any]) -> list[Brief]:
        return [
            Brief(id.decode(), int(buried), topic.decode(errors="replace"), read_reason(text)[1])
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
    call: str = "",
    entry: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[str]]:
    """Redrive dead letters, due now. Returns 'scheduled', 'notDead', 'corrupt' or 'moved' for each."""
    return Command(
        "redrive",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.dead, keys.reasons, keys.audit, keys.moves, keys.final),
        (now, keys.wake, retention.window, entry, call, *allowed(ids, topics)),
        _noting(entry, changed, words),
    )


def discard(
    keys: QueueKeys,
    ids: Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    entry: str = "",
    by: str = "",
    changed: list[str] | None = None,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[list[bool | None]]:
    """Delete dead letters permanently. Returns False for an id that never was one, and None for one that has moved."""
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
            keys.moves,
        ),
        (now, retention.window, retention.most, entry, by, *allowed(ids, topics)),
        _noting(entry, changed, lambda reply: [None if removed < 0 else bool(removed) for removed in reply]),
    )
