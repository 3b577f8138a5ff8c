"""Read the facts about ids, keys and queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from delayq.domain.codec import CorruptRecord, Record
from delayq.domain.message import Message, State
from delayq.domain.words import shown
from delayq.store.commands.command import MOVED, RETENTION, Command, Now, Retention, number, plain, texts
from delayq.store.keys import ParkedSet, QueueKeys

__all__ = [
    "COUNTERS",
    "COUNTER_FIELDS",
    "HELD_AT_ONCE",
    "LOOK_BY_KEY",
    "Carriers",
    "Found",
    "HeldTopics",
    "QueueStats",
    "Searched",
    "asked",
    "count_before",
    "count_key",
    "count_parked",
    "dead_letter",
    "delivered_by_force",
    "due_in",
    "find_by_key",
    "find_by_property",
    "found",
    "get",
    "held_topics",
    "is_held",
    "lowest_due",
    "place_in",
    "read_reason",
    "read_record",
    "stats",
    "write_off",
]


#: The most topics that the commands of one packet count, as Redis executes a packet without a break: about 2 µs for each.
HELD_AT_ONCE: Final = 4_000
#: The maximum number of index entries that one search by a business key reads: it takes the server a few ms.
LOOK_BY_KEY: Final = 5_000


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about an id; `message` and `due` are None once it has ended, `attempts` counts failed ones.

    The message comes from its `record` in the pool, or from the `answer` of the API, which has its own client.

    For a dead letter, `reason` is why and `ended` when it was buried. For an ended message, `ended` is when, and `topic`
    is its topic if that is remembered. `ended_by` is the name of the API key (or of the person) that cancelled or
    discarded it. The `reason` of a delivered one names the consumer groups that gave it up. If it was handed back,
    `first_due` is its due time when it was scheduled. For a parked message, `reason` is the cause of its wait, and
    `next_probe` the time of its target's next probe, if the workers report it.
    """

    id: str
    queue: int
    state: str
    record: Record | None = None
    answer: Any = None
    due: int | None = None
    attempts: int = 0
    reason: str | None = None
    ended: int | None = None
    ended_by: str | None = None
    topic: str | None = None
    first_due: int | None = None
    next_probe: int | None = None

    @property
    def message(self) -> Message | None:
        """The message, with its asked due time as `expect_date`."""
        source = self.record or self.answer
        return None if source is None else source.message(self.id)

    @property
    def known_topic(self) -> str | None:
        """The topic of the message, or of an ended one whose topic is remembered."""
        return self.topic if self.record is None else self.record.topic


def get(
    keys: QueueKeys, ids: Sequence[str], *, now: Now = "", retention: Retention = RETENTION
) -> Command[list[Found | None]]:
    """Read the facts about ids of one queue; None for one that does not exist, the state 'moved' if the queue is
    closed.
    """

    def read(reply: list[Any]) -> list[Found | None]:
        when, watermark = int(reply[0]), int(reply[1]) if reply[1] else -1
        return [found(id, keys.number, one, when, watermark) for id, one in zip(ids, reply[2:], strict=True)]

    return Command(
        "get",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.final,
            keys.dead,
            keys.reasons,
            keys.ended,
            keys.moves,
        ),
        (now, retention.window, *ids),
        read,
    )


def found(id: str, queue: int, reply: Any, now: int, watermark: int) -> Found | None:
    """Return the facts in the reply of a script: record, place, score, attempts and reason; or how it ended."""
    if not reply:
        return None
    if isinstance(reply, bytes):
        return Found(id=id, queue=queue, state=MOVED)
    if len(reply) == 4:
        how, when, topic, by = (part.decode(errors="replace") for part in reply)  # a damaged record leaves such a topic
        at, _, first_due = when.partition(" ")
        return Found(
            id=id, queue=queue, state=shown(how), ended=int(at), topic=topic or None, ended_by=by or None,
            first_due=int(first_due) if first_due else None,
        )  # fmt: skip
    raw, place, score, attempts, reason = reply
    due = int(score) if score else None
    if place == b"dead":
        return dead_letter(id, queue, reason.partition(b" ")[0], raw, reason)
    if place in (b"parked", b"held"):
        state = place.decode()
    elif due is not None and due > now and attempts:
        state = State.RETRYING
    elif due is not None and due <= watermark:  # before the clock: a cancel would not be certain either
        state = State.IN_FLIGHT
    elif due is not None and due > now:
        state = State.SCHEDULED
    else:
        state = State.DUE
    return Found(id=id, queue=queue, state=state, record=read_record(raw), due=due, attempts=number(attempts))


def dead_letter(id: str, queue: int, buried: bytes, raw: bytes, reason: bytes) -> Found:
    """Return the facts about a dead letter, by the time of its death, its record and its stored reason."""
    tries, why = read_reason(reason)
    ended, record = number(buried), read_record(raw)
    return Found(id=id, queue=queue, state=State.DEAD, record=record, attempts=tries, reason=why, ended=ended)


def read_record(raw: bytes) -> Record | None:
    if not raw:  # only their sizes were requested: an exception for each would take most of the time
        return None
    try:
        return Record(raw)
    except CorruptRecord:
        return None


def read_reason(text: bytes) -> tuple[int, str]:
    _, tries, why = (*text.split(b" ", 2), b"", b"", b"")[:3]
    return number(tries), why.decode(errors="replace")


class Carriers(list[str]):
    """A page of the ids of one queue's messages that have a business key and have not ended, in order.

    `ended` are remembered ids of ended ones. The next page begins after the id `behind` ('': this is the last page). A
    page may be empty and not be the last.
    """

    __slots__ = ("behind", "ended")

    def __init__(self, ids: Iterable[str] = (), ended: Iterable[str] = (), behind: str = "") -> None:
        super().__init__(ids)
        self.ended = list(ended)
        self.behind = behind


def find_by_key(
    keys: QueueKeys,
    key: str,
    limit: int,
    after: str = "",
    *,
    ended: int = 0,
    look: int = LOOK_BY_KEY,
    now: Now = "",
    retention: Retention = RETENTION,
) -> Command[Carriers]:
    """Read up to `limit` messages of one queue with the business key, and up to `ended` ended ones, after an id."""
    return Command(
        "find_by_key",
        (keys.index, keys.state, keys.final),
        (key, limit, after, ended, look, now, retention.window),
        lambda reply: Carriers(texts(reply[1]), texts(reply[2]), reply[0].decode()),
    )


def asked(keys: QueueKeys, ids: Sequence[str]) -> Command[list[list[str]]]:
    """Find one queue's messages by the ids that their callers gave, without an ordering key's suffix: at most two of
    each.
    """
    return Command("asked", (keys.index,), ids, lambda reply: [texts(one) for one in reply])


class Searched(msgspec.Struct, frozen=True):
    """A page of a queue's pool: the next cursor ('0': this was the last), and the ids that were found in it.

    `looked` is the number of messages that were read, and `size` the bytes of their records.
    """

    cursor: str
    looked: int
    size: int
    ids: list[str]


def find_by_property(keys: QueueKeys, cursor: str, look: int, name: str, value: str) -> Command[Searched]:
    """Find the ids of the messages in a page of one queue's pool that have a property."""
    return Command(
        "find_by_property",
        (keys.pool,),
        (cursor, look, name, value),
        lambda reply: Searched(reply[0].decode(), reply[1], reply[2], texts(reply[3:])),
    )


def count_key(keys: QueueKeys, key: str) -> Command[int]:
    """Count the messages of one queue with the key. It must be a reserved one: counts of other keys include ended
    messages.
    """
    return plain("ZLEXCOUNT", keys.index, f"({key}\0", f"({key}\1", read=int, key=keys.index)


def is_held(keys: QueueKeys, topic: str, id: str, generation: bytes) -> Command[bool]:
    """Return whether a message of one queue is parked because its topic is paused or limited."""
    ticket = id.encode() + b"\0" + generation
    return plain("ZSCORE", keys.held(topic), ticket, read=lambda reply: reply is not None)


def place_in(key: str, ticket: bytes) -> Command[int | None]:
    """Return the number of tickets before this one in a sorted set; None if it is not there."""
    return plain("ZRANK", key, ticket, read=lambda reply: reply, key=key)


def due_in(key: str, ticket: bytes) -> Command[int | None]:
    """Return the due time of a ticket in a sorted set; None if it is not there."""
    return plain("ZSCORE", key, ticket, read=lambda reply: None if reply is None else int(float(reply)), key=key)


def count_before(key: str, due: int) -> Command[int]:
    """Return the number of tickets of a sorted set that are due earlier."""
    return plain("ZCOUNT", key, "-inf", f"({due}", read=int, key=key)


def delivered_by_force(keys: QueueKeys, id: str) -> Command[bool]:
    """Return whether a caller has forced the delivery of a message, regardless of pauses and limits."""
    return plain(
        "HGET",
        keys.attempts,
        id,
        read=lambda reply: (reply or b"")[:2] == b"+0" and len(reply) > 2,
        key=keys.attempts,
    )


def count_parked(keys: QueueKeys, name: str) -> Command[int]:
    """Count the messages of one queue that are parked under this name; cancelled ones may be included."""
    return plain("ZCARD", keys.parked(name), read=int)


class HeldTopics(msgspec.Struct, frozen=True):
    """A page of the topics of which a queue holds messages, and the cursor of the next page ('0': there is none).

    The counts include tickets of cancelled messages. Two pages may have the same topic.
    """

    cursor: str
    counts: dict[str, int]


def held_topics(keys: QueueKeys, cursor: str, match: str, look: int) -> Command[HeldTopics]:
    """Count the held messages of the topics that `match` covers, in a page of about `look` topics from a cursor on."""

    def read(reply: list[Any]) -> HeldTopics:
        cursor, *rest = reply
        return HeldTopics(cursor.decode(), dict(zip(texts(rest[::2]), rest[1::2], strict=True)))

    return Command("held_topics", (keys.state,), (cursor, match, look), read)


def lowest_due(key: str) -> Command[int | None]:
    """Return the earliest due time in a sorted set of tickets; None if it is empty."""
    return plain("ZRANGE", key, "0", "0", "WITHSCORES", read=lambda reply: int(reply[1]) if reply else None)


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one queue; counts are messages, times ms. A closed one accepts no new messages.

    `parked_sets` has the names of all parked sets, or those of routes and the requested number of topics.
    """

    queue: int
    now: int
    closed: bool
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
    pool: int
    born: str | None

    @property
    def missing(self) -> int:
        """The number of messages that were scheduled, have not ended, and do not exist; negative if there are too many."""
        ended = sum(self.counters[shown(name)] for name in ENDS)
        return self.counters["scheduled"] - ended - self.counters[shown("written_off")] - self.pool

    @property
    def held_topics(self) -> list[str]:
        """The topics with messages that a pause or a limit holds."""
        held = filter(ParkedSet.is_of_topic, self.parked_sets)
        return [topic for name in held if (topic := ParkedSet.topic(name)) is not None]

    @property
    def head_lateness(self) -> int:
        """The ms by which the earliest message is overdue."""
        return max(0, self.now - self.head_due) if self.head_due is not None else 0


#: The fields of the counters of a queue.
COUNTER_FIELDS: Final = (
    "scheduled", "rescheduled", "forwarded", "retried", "buried", "discarded", "cancelled", "cancelled_in_flight",
    "orphans", "repaired", "written_off",
)  # fmt: skip
_STATE: Final = ("closed", "epoch", "watermark", "born")
#: The counters, as interfaces name them.
COUNTERS: Final = tuple(map(shown, COUNTER_FIELDS))
#: The fields of the counters of messages that left the pool.
ENDS: Final = ("forwarded", "cancelled", "cancelled_in_flight", "discarded")


def _read_stats(number: int, reply: list[Any]) -> QueueStats:
    now, queue, due, head, pool, remembered, dead, *pairs = reply
    state = {pairs[i].decode(): pairs[i + 1].decode() for i in range(0, len(pairs), 2)}
    return QueueStats(
        queue=number,
        now=int(now),
        closed="closed" in state,
        scheduled=queue,
        due=due,
        head_due=int(head) if head else None,
        parked=max(0, pool - queue - dead),
        dead=dead,
        remembered=remembered,
        epoch=state.get("epoch"),
        watermark=int(state["watermark"]) if "watermark" in state else None,
        parked_sets=tuple(name.removeprefix("parked:") for name in state if name.startswith("parked:")),
        counters={shown(name): int(state.get(name, 0)) for name in COUNTER_FIELDS},
        pool=pool,
        born=state.get("born"),
    )


def write_off(keys: QueueKeys, *, entry: str = "") -> Command[int]:
    """Accept that messages are missing: their number (negative for too many)."""
    return Command("write_off", (keys.state, keys.pool, keys.audit), (entry, *ENDS), int)


def stats(keys: QueueKeys, *, most_held: int | None = None, now: Now = "") -> Command[QueueStats]:
    """Read the figures of one queue. With `most_held`, it has the names of that many held sets of topics, and none of
    an ordering key.
    """

    def read(reply: list[Any]) -> QueueStats:
        return _read_stats(keys.number, reply)

    return Command(
        "stats",
        (keys.state, keys.queue, keys.pool, keys.final, keys.dead),
        (now, "") if most_held is None else (now, most_held, *_STATE, *COUNTER_FIELDS),
        read,
    )
