"""The commands by which an owner claims a queue, pulls its messages, and settles them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from delayq.domain.message import RESERVED
from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, number, plain, texts
from delayq.store.keys import ParkedSet, QueueKeys

__all__ = [
    "AsPulled",
    "BucketHere",
    "Claimed",
    "Head",
    "Known",
    "KnownTopics",
    "Listed",
    "Most",
    "Outdated",
    "Parked",
    "Pulled",
    "Released",
    "Traced",
    "ack",
    "bury",
    "claim",
    "park",
    "pull",
    "release",
    "release_set",
    "repair",
    "retry",
    "stored_epoch",
    "takes",
]


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim states whether Redis accepted the epoch.

    `epoch` is the epoch in Redis now, `parked` are the names of the parked sets.
    """

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
    """Read the highest epoch of a queue in Redis."""
    return plain("HGET", keys.state, "epoch", read=lambda reply: reply.decode() if reply else None)


class Traced(msgspec.Struct, frozen=True, gc=False):
    """A message was appended to a stream of this Redis and has a W3C trace context."""

    id: str
    topic: str
    attempt: int
    traceparent: str


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """The answer to a pull contains the messages that it took. The four lists have one element for each message.

    - `now` is in ms, and `micro` adds µs to it. `next_due` is None if no message is left.
    - `start` counts the tickets before the first one that the pull read. `last` is (score, ticket) of the last one.
    - `refused` has the topics whose stream accepts no entries, with the error of Redis. The pull returns their messages.
    - `let_past` has the tickets of messages that a caller delivers now: they pass an open circuit. With *force* (True)
      they also pass pauses and limits.
    - `parked` are the names of the parked sets; None if the caller did not ask for them.
    - `counted` is how many messages were ever scheduled, delivered and cancelled before this pull.
    - `ahead` is how many ms the clock of Redis is ahead of `now`.
    - `sets` describes, by name, the sets into which the pull moved messages, except the sets of paused topics.
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
    refused: dict[str, str]
    traces: tuple[Traced, ...] = ()
    parked: tuple[str, ...] | None = None
    counted: tuple[int, ...] = ()
    let_past: Mapping[bytes, bool] = {}
    ahead: int = 0
    sets: Mapping[str, Parked] = {}


class Outdated(msgspec.Struct, frozen=True):
    """A pull or a release named another version of the policies than the queue has, and changed nothing.

    `version` is the queue's version; '' if it has none.
    """

    version: str


def _read_pull(listed: bool, reply: list[Any]) -> Pulled | Outdated | None:
    if reply[0] == b"fenced":
        return None
    if reply[0] == b"policies":
        return Outdated(reply[1].decode())
    (
        _,
        now,
        micro,
        next_due,
        more,
        start,
        score,
        ticket,
        appended,
        tickets,
        scores,
        attempts,
        records,
        unknown,
        refused,
        traces,
        parked,
        counted,
        ahead,
        sets,
    ) = reply
    return Pulled(
        int(now),
        micro,
        int(next_due) if next_due else None,
        more == b"1",
        start,
        (int(score), ticket) if score else None,
        appended,
        tickets,
        list(map(int, scores)),
        [number(tries) if tries else 0 for tries in attempts],
        records,
        [topic.decode() for topic in unknown],
        _read_refused(refused) if refused else {},
        _read_traces(traces) if traces else (),
        tuple(name.decode() for name in parked) if listed else None,
        tuple(map(number, counted)),
        _let_past(tickets, attempts) if any(attempts) else {},
        ahead,
        _read_sets(sets) if sets else {},
    )


def _read_refused(reply: list[bytes]) -> dict[str, str]:
    return {
        topic.decode(): error.decode(errors="replace") for topic, error in zip(reply[::2], reply[1::2], strict=True)
    }


def _read_sets(reply: list[Any]) -> dict[str, Parked]:
    sets = zip(reply[::4], reply[1::4], reply[2::4], reply[3::4], strict=True)
    return {name.decode(): Parked((int(due), ticket) if due else None, count) for name, due, ticket, count in sets}


def _let_past(tickets: list[bytes], attempts: list[bytes]) -> Mapping[bytes, bool]:
    return {
        ticket: len(tries) > 2 and tries[1:2] == b"0"
        for ticket, tries in zip(tickets, attempts, strict=True)
        if tries[:1] == b"+"
    }


def _read_traces(reply: list[bytes]) -> tuple[Traced, ...]:
    texts = [text.decode(errors="replace") for text in reply]
    return tuple(
        Traced(id, topic, number(attempt), trace)
        for id, topic, attempt, trace in zip(texts[::4], texts[1::4], reply[2::4], texts[3::4], strict=True)
    )


def takes(stream: str) -> Command[str]:
    """Check whether messages can be appended to a stream.

    Returns '', or the reason why not. A forbidden key raises StoreError.
    """
    return Command("takes", (stream,), (), lambda reply: reply.decode(errors="replace"))


class BucketHere(msgspec.Struct, frozen=True):
    """The bucket of a rate is on the server of the queue, so that a pull can spend from it."""

    key: str
    rate: float
    burst: float


class Known(msgspec.Struct, frozen=True):
    """A topic has a destination that a pull knows: a stream in this Redis, or (None) the owner.

    The pull appends the topic's messages to the stream, or returns them to the owner. `max_length` is the MAXLEN of the
    stream. With `per_queue`, each queue has its own stream of that name. The pull spends from `bucket` for each message
    that it appends.
    """

    topic: str
    stream: str | None = None
    max_length: int | None = None
    per_queue: bool = False
    bucket: BucketHere | None = None

    def key(self, keys: QueueKeys) -> str | None:
        """Return the key of the stream, or None if the topic has no stream."""
        return self.stream if self.stream is None or not self.per_queue else keys.stream(self.stream)


class KnownTopics(msgspec.Struct, frozen=True):
    """The topics with known destinations are written as the scripts read them.

    `keys` are the keys of the streams, then the keys of the buckets. `args` has three arguments for each topic.
    """

    keys: tuple[str, ...] = ()
    args: tuple[Arg, ...] = ()

    @classmethod
    def of(cls, keys: QueueKeys, known: Iterable[Known]) -> KnownTopics:
        """Write these topics for a queue."""
        streams: list[str] = []
        args: list[Arg] = []
        known = list(known)
        place = sum([one.stream is not None for one in known])
        buckets: dict[str, int] = {}
        for one in known:
            if (stream := one.key(keys)) is None:
                args += (one.topic, "", "")
                continue
            streams.append(stream)
            options: Arg = one.max_length or ""
            if (bucket := one.bucket) is not None:
                number = buckets.setdefault(bucket.key, place + len(buckets) + 1)
                options = f"{one.max_length or ''}={number} {bucket.rate!r} {bucket.burst!r}"
            args += (one.topic, len(streams), options)
        return cls((*streams, *buckets), tuple(args))


NO_TOPICS: Final = KnownTopics()
#: The most bytes of messages that a script returns.
MOST_BYTES: Final = 8 * 1024 * 1024

#: A number of messages; or permits: pairs of a time (Unix ms by the queue's server) and the number that is valid until then.
Most = int | Sequence[tuple[int, int]]


class Listed(Enum):
    """A pull returns the names of these parked sets."""

    NONE = "0"
    BUT_TOPICS = "1"
    ALL = "2"


def _keys_to_deliver(keys: QueueKeys) -> tuple[str, ...]:
    """Return the keys of a queue that a script needs to append messages to streams, as `look` and `leave` expect them."""
    return (
        keys.state,
        keys.queue,
        keys.pool,
        keys.attempts,
        keys.index,
        keys.final,
        keys.dead,
        keys.reasons,
        keys.ended,
        keys.moves,
    )


def pull(
    keys: QueueKeys,
    epoch: str,
    *,
    offset: int,
    behind: bytes = b"",
    room: int,
    look: int = 500,
    most_bytes: int = MOST_BYTES,
    fresh: bool = False,
    known: KnownTopics = NO_TOPICS,
    unlisted_general: bool = True,
    node_now: Now = "",
    now: Now = "",
    retention: Retention = RETENTION,
    traced: bool = False,
    listed: Listed = Listed.NONE,
    version: str = "",
    without_permits: Sequence[str] = (),
    in_memory: Sequence[bytes] = (),
) -> Command[Pulled | Outdated | None]:
    """Take due messages, from the due time `offset` on.

    The pull begins after the ticket `behind`, the last one that was read. If that ticket is gone, the pull begins with
    the first one at `offset`. The answer is None if the owner is fenced.

    - `traced` asks for the `traces` of appended messages, `listed` for names of parked sets.
    - `version` is the version of the policies that the owner applies.
    - `without_permits` are the known topics whose messages the pull moves into their sets instead of appending them.
    - `in_memory` are the tickets after the offset that the owner has in flight. The pull does not take them again.
    """
    args: list[Arg] = [
        epoch, now, node_now, offset, behind, room, look, most_bytes, "1" if fresh else "0",
        "general" if unlisted_general else "unknown", retention.window, retention.most, "1" if traced else "0",
        listed.value, version, len(known.args) // 3, len(without_permits),
        *known.args, *without_permits, *in_memory,
    ]  # fmt: skip
    return Command(
        "pull",
        (*_keys_to_deliver(keys), *known.keys),
        args,
        partial(_read_pull, listed is not Listed.NONE),
    )


class AsPulled(Protocol):
    """A pulled message has the facts that the scripts compare before they settle it."""

    @property
    def ticket(self) -> bytes: ...
    @property
    def score(self) -> int:
        """Return its score in the queue: the due time (Unix ms) of this attempt."""

    @property
    def attempts(self) -> int:
        """Return the number of failed attempts."""

    @property
    def digest(self) -> int | None:
        """Return its digest, if its id is remembered after delivery."""

    @property
    def topic(self) -> str:
        """Return its topic."""

    @property
    def index_keys(self) -> tuple[str, ...]:
        """Return the keys of its entries in the index."""


def ack(
    keys: QueueKeys, epoch: str, done: Sequence[AsPulled], *, now: Now = "", retention: Retention = RETENTION
) -> Command[tuple[bool, int]]:
    """Forget delivered messages. Returns whether the epoch is valid (False: fenced), and how many were removed."""
    args: list[Arg] = [epoch, now, retention.window, retention.most, len(done)]
    args += [one.ticket for one in done]
    args += [one.score for one in done]
    keyed: list[Arg] = []
    reserved: list[Arg] = []
    for one in done:
        remembered: Arg | None = one.digest
        if index_keys := one.index_keys:
            id = one.ticket[:-8]
            own: Sequence[str] = index_keys
            if index_keys[-1].startswith(RESERVED):  # reserved keys come last
                own = [key for key in index_keys if not key.startswith(RESERVED)]
                reserved += [key.encode() + b"\0" + id for key in index_keys[len(own) :]]
            if own:
                keyed += (id, f"{' '.join(own)} \1{one.topic}\0")
                remembered = remembered or 0
        args.append("" if remembered is None else remembered)
    args += (len(keyed) // 2, *keyed, *reserved)
    return Command(
        "ack",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final, keys.ended, keys.moves),
        args,
        lambda reply: (reply[0] == b"ok", reply[1]),
    )


def _read_settled(reply: list[Any]) -> list[str] | None:
    return None if reply[0] == b"fenced" else texts(reply[1:])


def retry(keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int | None]]) -> Command[list[str] | None]:
    """Count a failed attempt of each message, and set the due time of its next one (None keeps the time).

    Returns 'ok', 'gone' or 'changed' for each; None if fenced.
    """
    args: list[Arg] = [epoch]
    for one, next_due in failed:
        args += (one.ticket, one.score, one.attempts, "" if next_due is None else next_due)
    return Command("retry", (keys.state, keys.queue, keys.attempts), args, _read_settled)


def bury(
    keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int, str]], *, now: Now = ""
) -> Command[list[str] | None]:
    """Bury messages, with their attempts and a reason.

    Returns 'ok', 'gone' or 'changed' for each; None if fenced.
    """
    args: list[Arg] = [epoch, now]
    for one, attempts, reason in failed:
        # A target's reason may have lone surrogates. An encoding error would delay the other messages.
        args += (one.ticket, one.score, one.attempts, attempts, reason.encode(errors="replace"))
    names = (keys.state, keys.queue, keys.attempts, keys.dead, keys.reasons)
    return Command("bury", names, args, _read_settled)


#: The score and the ticket of the earliest message in a set.
Head = tuple[int, bytes]


class Parked(msgspec.Struct, frozen=True):
    """A parked set has a `head`, its earliest message (None if the set is empty), and `count` tickets.

    The count includes the tickets of cancelled messages.
    """

    head: Head | None
    count: int = 0


def _read_parked(reply: list[Any]) -> Parked | None:
    if reply[0] == b"fenced":
        return None
    due, ticket, count = reply[1:]
    return Parked((int(due), ticket) if due else None, count)


def park(keys: QueueKeys, epoch: str, name: str, messages: Sequence[AsPulled]) -> Command[Parked | None]:
    """Park messages under `name`. Returns None if fenced."""
    args: list[Arg] = [epoch, name]
    for one in messages:
        args += (one.ticket, one.score, one.attempts)
    return Command("park", (keys.state, keys.queue, keys.attempts, keys.parked(name)), args, _read_parked)


class Released(msgspec.Struct, frozen=True, gc=False):
    """The answer to a release contains the messages that it took out of parked sets: they are in flight from now on.

    `appended` counts the messages that went to streams. `refused` and `let_past` are as in `Pulled`. `left` is, for each
    topic with permits, how many more messages might have been appended. `sets` describes, by name, the state of each set
    after the release. A release of one set drops tickets whose messages were
    cancelled or moved elsewhere. `dropped` is the earliest due time of these tickets.
    """

    now: int
    appended: int
    tickets: list[bytes]
    scores: list[int]
    attempts: list[int]
    records: list[bytes]
    refused: dict[str, str]
    traces: tuple[Traced, ...]
    left: Mapping[str, int]
    sets: Mapping[str, Parked]
    dropped: int | None
    let_past: Mapping[bytes, bool]
    last: Head | None = None  # a release does not report the due times of appended messages


def _read_released(reply: list[Any]) -> Released | Outdated | None:
    if reply[0] == b"fenced":
        return None
    if reply[0] == b"policies":
        return Outdated(reply[1].decode())
    _, now, appended, tickets, scores, attempts, records, refused, traces, left, sets, dropped = reply
    return Released(
        int(now),
        appended,
        tickets,
        list(map(int, scores)),
        [number(tries) if tries else 0 for tries in attempts],
        records,
        _read_refused(refused),
        _read_traces(traces) if traces else (),
        {topic.decode(): count for topic, count in zip(left[::2], left[1::2], strict=True)},
        _read_sets(sets),
        int(dropped) if dropped else None,
        _let_past(tickets, attempts) if any(attempts) else {},
    )


def _written(most: Most) -> Arg:
    return most if isinstance(most, int) else " ".join([f"{count}@{until}" for until, count in most])


def release(
    keys: QueueKeys,
    epoch: str,
    topics: Mapping[str, Most],
    *,
    known: KnownTopics,
    upto: Head | None,
    most_bytes: int = MOST_BYTES,
    node_now: Now = "",
    now: Now = "",
    retention: Retention = RETENTION,
    traced: bool = False,
    version: str = "",
) -> Command[Released | Outdated | None]:
    """Take the earliest messages out of the sets of topics, at most as many of each topic as `topics` gives, or by its permits.

    - The release takes no message after `upto`, the place that the pulls have reached (None: all due messages).
    - `known` has the same topics, in the same order.
    - The release appends messages whose topic is a stream in this Redis.

    The answer is None if the owner is fenced.
    """
    args: list[Arg] = [
        epoch, now, node_now, version, *(upto or ("", "")), most_bytes, retention.window, retention.most,
        "1" if traced else "0", len(topics), *known.args, *map(_written, topics.values()),
    ]  # fmt: skip
    sets = [keys.parked(ParkedSet.of_topic(topic)) for topic in topics]
    return Command("release", (*_keys_to_deliver(keys), *sets, *known.keys), args, _read_released)


def release_set(
    keys: QueueKeys,
    epoch: str,
    name: str,
    most: int | None,
    *,
    upto: Head | None = None,
    begin: float = 0,
    node_now: Now = "",
    now: Now = "",
    version: str = "",
) -> Command[Released | Outdated | None]:
    """Take `most` messages out of the set of a route or a lane, as `release` does for topics.

    If `most` is None, the call moves messages into the sets of their topics instead: one call moves a part of them.
    `begin` (0 to 1) selects where in the set the release begins, so that a probe is not always the same message. The
    answer is None if the owner is fenced.
    """
    args: list[Arg] = [
        epoch, now, node_now, version, *(upto or ("", "")), MOST_BYTES, 0, 0, "0", 0,
        name, "all" if most is None else most, f"{begin:.6f}",
    ]  # fmt: skip
    return Command("release", (*_keys_to_deliver(keys), keys.parked(name)), args, _read_released)


def repair(
    keys: QueueKeys, parked: Sequence[str], cursor: str, look: int = 500, *, entry: str = "", now: Now = ""
) -> Command[tuple[str, int, int]]:
    """Check a page of the pool, and repair its tickets.

    Returns the next cursor, the number of repaired tickets, and the number of records that were buried as corrupt.
    """
    return Command(
        "repair",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.dead,
            keys.reasons,
            keys.audit,
            *map(keys.parked, parked),
        ),
        (now, cursor, look, entry),
        lambda reply: (reply[0].decode(), reply[1], reply[2]),
    )
