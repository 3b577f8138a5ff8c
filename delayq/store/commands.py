"""Every operation as a value: which script, on which keys, with which arguments, and how to read the reply.

Nothing here talks to Redis; `Store` and `AsyncStore` run commands. `now` is '' for the clock of Redis, or a time
(Unix ms) that a test hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from delayq.codec import CorruptRecord, Record
from delayq.message import State
from delayq.store.keys import META, NODES, QueueKeys

__all__ = [
    "Command", "DeadLetter", "Found", "Pulled", "QueueStats", "Retention", "ack", "bury", "cancel", "claim", "dead_letters",
    "discard", "find", "get", "layout", "nodes", "park", "publish_node", "pull", "redrive", "repair", "reschedule",
    "retry", "schedule", "stats", "unpark",
]  # fmt: skip

T = TypeVar("T")
Arg = bytes | str | int
LAYOUT_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One call to Redis: a script by name, or (`script` empty) a plain command in `args`."""

    script: str
    keys: Sequence[str]
    args: Sequence[Arg]
    read: Callable[[Any], T]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how many ended ids are remembered (`final`), and which."""

    window: int = 15 * 60_000
    most: int = 200_000
    short: int = 30_000


_RETENTION: Final = Retention()
Now = int | str


def plain(*args: Arg, read: Callable[[Any], T]) -> Command[T]:
    """A plain Redis command."""
    return Command("", (), args, read)


# -- scheduling ------------------------------------------------------------------------------------------------------


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
    keys: QueueKeys, messages: Sequence[Arg], *, now: Now = "", retention: Retention = _RETENTION
) -> Command[Answers]:
    """Schedule up to 500 messages of one queue; `messages` is id, spec, content of each in a row.

    A spec is 'a' (at) or 'r' (after), in upper case if the caller gave the id, then ms.
    """
    head: list[Arg] = [now, keys.wake, retention.window, retention.short]
    head.extend(messages)
    return Command("schedule", (keys.state, keys.queue, keys.pool, keys.index, keys.final), head, _read_schedule)


def cancel(
    keys: QueueKeys, ids: Sequence[str], *, now: Now = "", retention: Retention = _RETENTION
) -> Command[list[str]]:
    """Cancel messages of one queue: 'cancelled', 'in_flight', 'delivered', 'dead' or 'not_found' of each."""
    return Command(
        "cancel",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final, keys.dead),
        (now, retention.window, retention.most, *ids),
        _texts,
    )


def reschedule(
    keys: QueueKeys, id: str, spec: str, *, now: Now = "", retention: Retention = _RETENTION
) -> Command[tuple[str, int | None]]:
    """Give a message another due: ('scheduled', due), or why not and None."""
    return Command(
        "reschedule",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead),
        (now, keys.wake, retention.window, retention.short, id, spec),
        lambda reply: (reply[0].decode(), int(reply[1]) if len(reply) > 1 else None),
    )


# -- reading ---------------------------------------------------------------------------------------------------------


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an id; `record` and `due` are None once it has ended, `attempts` counts failed ones.

    For a dead letter, `reason` says why and `ended` when it was buried; for an ended one `ended` is when.
    """

    id: str
    state: str
    record: Record | None = None
    due: int | None = None
    attempts: int = 0
    reason: str | None = None
    ended: int | None = None


def get(
    keys: QueueKeys, ids: Sequence[str], *, now: Now = "", retention: Retention = _RETENTION
) -> Command[list[Found | None]]:
    """What is known of ids of one queue; None for one that is not there."""

    def read(reply: list[Any]) -> list[Found | None]:
        when, watermark = int(reply[0]), int(reply[1]) if reply[1] else -1
        return [_found(id, one, when, watermark) for id, one in zip(ids, reply[2:], strict=True)]

    return Command(
        "get",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.final, keys.dead, keys.reasons),
        (now, retention.window, *ids),
        read,
    )


def _found(id: str, reply: Any, now: int, watermark: int) -> Found | None:
    if not reply:
        return None
    if len(reply) == 2:
        state = State.CANCELLED if reply[0] else State.DELIVERED
        return Found(id=id, state=state, ended=int(reply[1]))
    raw, place, score, attempts, reason = reply
    due = int(score) if score else None
    if place == b"dead":
        buried, tries, why = _reason(reason)
        return Found(id=id, state=State.DEAD, record=_record(raw), attempts=tries, reason=why, ended=buried)
    if place == b"parked":
        state = State.PARKED
    elif due is not None and due > now and attempts:
        state = State.RETRYING
    elif due is not None and due <= watermark:  # before the clock: a cancel would not be certain either
        state = State.IN_FLIGHT
    elif due is not None and due > now:
        state = State.SCHEDULED
    else:
        state = State.DUE
    return Found(id=id, state=state, record=_record(raw), due=due, attempts=int(attempts or 0))


def _record(raw: bytes) -> Record | None:
    try:
        return Record(raw)
    except CorruptRecord:
        return None


def _reason(text: bytes) -> tuple[int, int, str]:
    buried, tries, why = (*text.split(b" ", 2), b"", b"", b"")[:3]
    return int(buried or 0), int(tries or 0), why.decode(errors="replace")


def find(keys: QueueKeys, key: str, limit: int) -> Command[list[str]]:
    """The ids of up to `limit` messages of one queue that carry the business key."""
    return Command("find", (keys.index,), (key, limit), _texts)


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one queue; counts are messages, times ms."""

    now: int
    scheduled: int
    due: int
    head_due: int | None
    parked: int
    dead: int
    remembered: int
    epoch: str | None
    watermark: int | None
    parked_sets: tuple[str, ...]
    counters: dict[str, int]

    @property
    def head_lateness(self) -> int:
        """By how many ms the earliest message is overdue."""
        return max(0, self.now - self.head_due) if self.head_due is not None else 0


COUNTERS: Final = (
    "scheduled", "rescheduled", "forwarded", "retried", "buried", "discarded", "cancelled", "cancelled_in_flight",
    "orphans", "repaired",
)  # fmt: skip


def _read_stats(reply: list[Any]) -> QueueStats:
    now, queue, due, head, pool, remembered, dead, *pairs = reply
    state = {pairs[i].decode(): pairs[i + 1].decode() for i in range(0, len(pairs), 2)}
    return QueueStats(
        now=int(now), scheduled=queue, due=due, head_due=int(head) if head else None,
        parked=max(0, pool - queue - dead), dead=dead, remembered=remembered, epoch=state.get("epoch"),
        watermark=int(state["watermark"]) if "watermark" in state else None,
        parked_sets=tuple(name.removeprefix("parked:") for name in state if name.startswith("parked:")),
        counters={name: int(state.get(name, 0)) for name in COUNTERS},
    )  # fmt: skip


def stats(keys: QueueKeys, *, now: Now = "") -> Command[QueueStats]:
    """The figures of one queue."""
    return Command("stats", (keys.state, keys.queue, keys.pool, keys.final, keys.dead), (now,), _read_stats)


# -- dead letters ----------------------------------------------------------------------------------------------------


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up: when (Unix ms), after how many attempts, and why."""

    id: str
    buried: int
    attempts: int
    reason: str
    record: Record | None


def dead_letters(keys: QueueKeys, limit: int, after: tuple[int, str] | None = None) -> Command[list[DeadLetter]]:
    """A page of one queue's dead letters, oldest first, behind the (time, id) of the last one seen."""

    def read(reply: list[Any]) -> list[DeadLetter]:
        letters = []
        for id, buried, raw, text in reply:
            _, tries, why = _reason(text)
            letters.append(
                DeadLetter(id=id.decode(), buried=int(buried), attempts=tries, reason=why, record=_record(raw))
            )
        return letters

    time, id = after if after is not None else ("", "")
    return Command("dead_letters", (keys.pool, keys.dead, keys.reasons), (limit, time, id), read)


def redrive(keys: QueueKeys, ids: Sequence[str], *, now: Now = "") -> Command[list[str]]:
    """Put dead letters back, due now: 'scheduled', 'not_dead' or 'corrupt' of each."""
    return Command(
        "redrive",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.dead, keys.reasons),
        (now, keys.wake, *ids),
        _texts,
    )


def discard(keys: QueueKeys, ids: Sequence[str]) -> Command[list[bool]]:
    """Delete dead letters for good; False for what is none."""
    return Command(
        "discard",
        (keys.state, keys.pool, keys.attempts, keys.index, keys.dead, keys.reasons),
        ids,
        lambda reply: [bool(removed) for removed in reply],
    )


# -- the owner of a queue --------------------------------------------------------------------------------------------


class Claimed(msgspec.Struct, frozen=True):
    """Whether the epoch was accepted, the one that Redis has, and the parked sets' names."""

    ok: bool
    epoch: str
    parked: tuple[str, ...]


def claim(keys: QueueKeys, epoch: str) -> Command[Claimed]:
    """Begin an epoch of a queue."""
    return Command(
        "claim",
        (keys.state,),
        (epoch,),
        lambda reply: Claimed(reply[0] == b"ok", reply[1].decode(), tuple(name.decode() for name in reply[2:])),
    )


def stored_epoch(keys: QueueKeys) -> Command[str | None]:
    """The highest epoch that Redis has seen of a queue."""
    return plain("HGET", keys.state, "epoch", read=lambda reply: reply.decode() if reply else None)


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """What a pull took. `now` is ms with `micro` µs behind; `next_due` is None when nothing is left.

    `start` counts the tickets before the first one looked at, `last` is (score, ticket) of the last one; the four
    lists belong together.
    """

    now: int
    micro: int
    next_due: int | None
    more: bool
    start: int
    last: tuple[int, bytes] | None
    appended: int
    tickets: list[bytes]
    scores: list[int]
    attempts: list[int]
    records: list[bytes]
    unknown_topics: list[str]
    wrong_streams: list[str]


def _read_pull(reply: list[Any]) -> Pulled | None:
    if reply[0] == b"fenced":
        return None
    (
        _, now, micro, next_due, more, start, score, ticket, appended, tickets, scores, attempts, records, unknown, wrong,
    ) = reply  # fmt: skip
    return Pulled(
        int(now), micro, int(next_due) if next_due else None, more == b"1", start, (int(score), ticket) if score else None,
        appended, tickets, list(map(int, scores)), [int(tries or 0) for tries in attempts], records,
        [topic.decode() for topic in unknown], [stream.decode() for stream in wrong],
    )  # fmt: skip


class Known(msgspec.Struct, frozen=True):
    """A topic whose way is known to a pull: the stream to append to (None: it is returned) and its MAXLEN."""

    topic: str
    stream: str | None = None
    max_length: int | None = None


def pull(
    keys: QueueKeys, epoch: str, *, offset: int, behind: bytes = b"", held: bytes = b"", room: int, look: int = 500,
    most_bytes: int = 8 * 1024 * 1024, fresh: bool = False, known: Sequence[Known] = (), unlisted_general: bool = True,
    node_now: Now = "", now: Now = "", retention: Retention = _RETENTION,
) -> Command[Pulled | None]:  # fmt: skip
    """Take due messages from `offset` (a due) on, behind the ticket last looked at or last held there.

    None means fenced.
    """
    streams = [one.stream for one in known if one.stream is not None]
    args: list[Arg] = [
        epoch, now, node_now, offset, behind, held, room, look, most_bytes, "1" if fresh else "0",
        "general" if unlisted_general else "unknown", retention.window, retention.most,
    ]  # fmt: skip
    place = 0
    for one in known:
        if one.stream is None:
            args += (one.topic, "", "")
        else:
            place += 1
            args += (one.topic, place, one.max_length or "")
    return Command(
        "pull",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.index,
            keys.final,
            keys.dead,
            keys.reasons,
            *streams,
        ),
        args,
        _read_pull,
    )


class AsPulled(Protocol):
    """A message as it was pulled: what settling it compares."""

    @property
    def ticket(self) -> bytes: ...
    @property
    def score(self) -> int:
        """Its place in the queue: the due (Unix ms) of this attempt."""

    @property
    def attempts(self) -> int:
        """Failed attempts so far."""

    @property
    def remembered(self) -> bool:
        """Whether its id is remembered when it is forwarded."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its business keys."""


def ack(
    keys: QueueKeys, epoch: str, done: Sequence[AsPulled], *, now: Now = "", retention: Retention = _RETENTION
) -> Command[tuple[bool, int]]:
    """Forget forwarded messages: (False if fenced, how many were removed)."""
    args: list[Arg] = [epoch, now, retention.window, retention.most, len(done)]
    args += [one.ticket for one in done]
    args += [one.score for one in done]
    args += ["1" if one.remembered else "0" for one in done]
    for one in done:
        if business_keys := one.keys:
            id = b"\0" + one.ticket[:-8]
            args += [key.encode() + id for key in business_keys]
    return Command(
        "ack",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final),
        args,
        lambda reply: (reply[0] == b"ok", reply[1]),
    )


def _read_settled(reply: list[Any]) -> list[str] | None:
    return None if reply[0] == b"fenced" else _texts(reply[1:])


def retry(keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int | None]]) -> Command[list[str] | None]:
    """Count a failed attempt of each and set the due of the next (None keeps it).

    'ok', 'gone' or 'changed' of each; None: fenced.
    """
    args: list[Arg] = [epoch]
    for one, next_due in failed:
        args += (one.ticket, one.score, one.attempts, "" if next_due is None else next_due)
    return Command("retry", (keys.state, keys.queue, keys.attempts), args, _read_settled)


def bury(
    keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int, str]], *, now: Now = ""
) -> Command[list[str] | None]:
    """Give messages up, after so many attempts and for a reason. 'ok', 'gone' or 'changed' of each; None: fenced."""
    args: list[Arg] = [epoch, now]
    for one, attempts, reason in failed:
        args += (one.ticket, one.score, one.attempts, attempts, reason)
    return Command("bury", (keys.state, keys.queue, keys.attempts, keys.dead, keys.reasons), args, _read_settled)


Head = tuple[int, bytes] | None


def park(keys: QueueKeys, epoch: str, name: str, messages: Sequence[AsPulled]) -> Command[tuple[Head] | None]:
    """Set messages aside under `name`: (score and ticket of the lowest one there,); None: fenced."""
    args: list[Arg] = [epoch, name]
    for one in messages:
        args += (one.ticket, one.score, one.attempts)
    return Command(
        "park",
        (keys.state, keys.queue, keys.attempts, keys.parked(name)),
        args,
        lambda reply: None if reply[0] == b"fenced" else (_head(reply[1:3]),),
    )


class Unparked(msgspec.Struct, frozen=True):
    """How many came back, the lowest due among them, and the lowest one still parked."""

    moved: int
    lowest: int | None
    head: Head


def unpark(keys: QueueKeys, epoch: str, name: str, limit: int) -> Command[Unparked | None]:
    """Put up to `limit` messages parked under `name` back into the queue, lowest due first; None: fenced."""
    return Command(
        "unpark",
        (keys.state, keys.queue, keys.pool, keys.parked(name)),
        (epoch, name, limit),
        lambda reply: (
            None
            if reply[0] == b"fenced"
            else Unparked(reply[1], int(reply[2]) if reply[2] else None, _head(reply[3:5]))
        ),
    )


def _head(pair: list[bytes]) -> Head:
    return (int(pair[0]), pair[1]) if pair[0] else None


def repair(
    keys: QueueKeys, parked: Sequence[str], cursor: str, look: int = 500, *, now: Now = ""
) -> Command[tuple[str, int, int]]:
    """Look at a page of the pool: (next cursor, messages that got their ticket back, records given up as corrupt)."""
    return Command(
        "repair",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.dead,
            keys.reasons,
            *map(keys.parked, parked),
        ),
        (now, cursor, look),
        lambda reply: (reply[0].decode(), reply[1], reply[2]),
    )


# -- the whole -------------------------------------------------------------------------------------------------------


class Meta(msgspec.Struct, frozen=True):
    """What all processes agree on: the number of queues, the version of the layout, the era of the epochs."""

    queues: int
    version: str
    era: int


def layout(queues: int) -> Command[Meta]:
    """Agree on the layout; the first process writes it."""
    return Command(
        "layout",
        (META,),
        (queues, LAYOUT_VERSION),
        lambda reply: Meta(int(reply[0]), reply[1].decode(), int(reply[2])),
    )


def publish_node(name: str, line: bytes) -> Command[None]:
    """Write a node's line, which API and CLI read."""
    return plain("HSET", NODES, name, line, read=lambda _: None)


def forget_node(name: str) -> Command[None]:
    """Remove a node's line."""
    return plain("HDEL", NODES, name, read=lambda _: None)


def nodes() -> Command[dict[str, bytes]]:
    """The nodes' lines."""

    def read(reply: Any) -> dict[str, bytes]:
        pairs = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return {name.decode(): line for name, line in pairs}

    return plain("HGETALL", NODES, read=read)


def _texts(reply: list[bytes]) -> list[str]:
    return [text.decode() for text in reply]
