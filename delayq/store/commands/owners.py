"""The operations of a queue's owner: claim it, pull its messages, settle them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from typing import Any, Final, Protocol

import msgspec

from delayq.message import RESERVED
from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, number, plain, texts
from delayq.store.keys import ParkedSet, QueueKeys

__all__ = [
    "AsPulled",
    "Bound",
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
    """Whether the epoch was accepted, the one in Redis, and the names of the parked sets."""

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
    """A message that was appended to a stream of this Redis, and its W3C trace context."""

    id: str
    topic: str
    attempt: int
    traceparent: str


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """What a pull took. `now` is ms with `micro` µs behind; `next_due` is None when nothing is left.

    `start` counts the tickets before the first one looked at, `last` is (score, ticket) of the last one; the four
    lists belong together. `refused` has the topics whose stream takes nothing, with the error of Redis; their messages
    are among those returned. `let_past` has the tickets that go by somebody's hand, past a circuit, or (True) past pauses and
    limits, too. `parked` are the names of the parked sets (None: they were not asked for). `counted` is how
    many messages were ever scheduled, delivered and cancelled before this pull. `left` is by share how many more might have
    been appended, where it looked at any message. `ahead` is by how many ms Redis's clock is ahead of `now`. `sets` describes by
    name the sets that it has put messages into, but for those of paused topics.
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
    left: Mapping[str, int] = {}
    ahead: int = 0
    sets: Mapping[str, Parked] = {}


class Outdated(msgspec.Struct, frozen=True):
    """A pull named other policies than the queue has, and changed nothing. `version` is the queue's, '' for none."""

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
        left,
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
        _read_left(left) if left else {},
        ahead,
        _read_sets(sets) if sets else {},
    )


def _read_refused(reply: list[bytes]) -> dict[str, str]:
    return {
        topic.decode(): error.decode(errors="replace") for topic, error in zip(reply[::2], reply[1::2], strict=True)
    }


def _read_left(reply: list[bytes]) -> dict[str, int]:
    return {name.decode(): int(count) for name, count in zip(reply[::2], reply[1::2], strict=True)}


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
    """Check whether messages can be appended to a stream: '', or the reason. A forbidden key raises StoreError."""
    return Command("takes", (stream,), (), lambda reply: reply.decode(errors="replace"))


class BucketHere(msgspec.Struct, frozen=True):
    """Return the bucket of a rate, on the server of the queue."""

    key: str
    rate: float
    burst: float


class Known(msgspec.Struct, frozen=True):
    """A topic whose way is known to a pull: the stream to append to (None: it is returned) and its MAXLEN, and the
    bucket from which the pull spends for what it appends.

    `per_queue`: it is the queue's own stream of that name.
    """

    topic: str
    stream: str | None = None
    max_length: int | None = None
    per_queue: bool = False
    bucket: BucketHere | None = None

    def key(self, keys: QueueKeys) -> str | None:
        """The stream's key."""
        return self.stream if self.stream is None or not self.per_queue else keys.stream(self.stream)


class KnownTopics(msgspec.Struct, frozen=True):
    """The topics that the pulls of a queue are told of, as the script reads them: the keys of their streams, then of
    their buckets, and arguments.
    """

    keys: tuple[str, ...] = ()
    args: tuple[Arg, ...] = ()

    @classmethod
    def of(cls, keys: QueueKeys, known: Iterable[Known]) -> KnownTopics:
        """Return these topics of a queue."""
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
#: Bytes of messages that a script returns.
MOST_BYTES: Final = 8 * 1024 * 1024

#: The number of messages, or the number until each time (Unix ms).
Most = int | Sequence[tuple[int, int]]


class Listed(Enum):
    """Which names of parked sets a pull returns."""

    NONE = "0"
    BUT_TOPICS = "1"
    ALL = "2"


class Bound(msgspec.Struct, frozen=True, dict=True):
    """What of a topic that is a stream here a pull may append: `most` messages, or until each time (Unix ms by the
    clock of its server) so many. It returns the others. Topics with the same `share` have `most` together.
    """

    topic: str
    most: Most
    share: str = ""

    @property
    def written(self) -> Arg:
        """Return `most` as the script reads it."""
        return self.most if isinstance(self.most, int) else " ".join([f"{n}@{until}" for until, n in self.most]) or 0

    @cached_property
    def args(self) -> Sequence[Arg]:
        """Return the argument of the script; pulls that find nothing have the same one."""
        return (self.topic, self.share, self.written)


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
    bounds: Sequence[Bound] = (),
    in_memory: Sequence[bytes] = (),
) -> Command[Pulled | Outdated | None]:
    """Take due messages from `offset` (a due) on, behind the ticket last looked at, or from the first one there if that is gone.

    None means fenced. `traced`: `traces` of what is appended are wanted; `listed`: which names of parked sets are.
    `version` is that of the policies which the owner goes by. `in_memory` are the tickets behind the offset that the
    owner has in flight: the pull leaves them alone.
    """
    args: list[Arg] = [
        epoch, now, node_now, offset, behind, room, look, most_bytes, "1" if fresh else "0",
        "general" if unlisted_general else "unknown", retention.window, retention.most, "1" if traced else "0",
        listed.value, version, len(known.args) // 3, len(bounds),
        *known.args,
    ]  # fmt: skip
    for bound in bounds:
        args += bound.args
    args += in_memory
    return Command(
        "pull",
        (*_keys_to_deliver(keys), *known.keys),
        args,
        partial(_read_pull, listed is not Listed.NONE),
    )


class AsPulled(Protocol):
    """A pulled message, with the facts that settling compares."""

    @property
    def ticket(self) -> bytes: ...
    @property
    def score(self) -> int:
        """Its place in the queue: the due time (Unix ms) of this attempt."""

    @property
    def attempts(self) -> int:
        """The number of failed attempts."""

    @property
    def digest(self) -> int | None:
        """Its digest, if its id is remembered after delivery."""

    @property
    def index_keys(self) -> tuple[str, ...]:
        """The keys of its entries in the index."""


def ack(
    keys: QueueKeys, epoch: str, done: Sequence[AsPulled], *, now: Now = "", retention: Retention = RETENTION
) -> Command[tuple[bool, int]]:
    """Forget delivered messages: (False if fenced, how many were removed)."""
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
            if index_keys[-1].startswith(RESERVED):  # they come last
                own = [key for key in index_keys if not key.startswith(RESERVED)]
                reserved += [key.encode() + b"\0" + id for key in index_keys[len(own) :]]
            if own:
                keyed += (id, own[0] if len(own) == 1 else " ".join(own))
                remembered = remembered or 0
        args.append("" if remembered is None else remembered)
    args += (len(keyed) // 2, *keyed, *reserved)
    return Command(
        "ack",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final, keys.ended),
        args,
        lambda reply: (reply[0] == b"ok", reply[1]),
    )


def _read_settled(reply: list[Any]) -> list[str] | None:
    return None if reply[0] == b"fenced" else texts(reply[1:])


def retry(keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int | None]]) -> Command[list[str] | None]:
    """Count a failed attempt of each, and set the due time of the next (None keeps it). Returns 'ok', 'gone' or
    'changed' for each; None: fenced.
    """
    args: list[Arg] = [epoch]
    for one, next_due in failed:
        args += (one.ticket, one.score, one.attempts, "" if next_due is None else next_due)
    return Command("retry", (keys.state, keys.queue, keys.attempts), args, _read_settled)


def bury(
    keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int, str]], *, now: Now = ""
) -> Command[list[str] | None]:
    """Bury messages, with their attempts and a reason. Returns 'ok', 'gone' or 'changed' for each; None: fenced."""
    args: list[Arg] = [epoch, now]
    for one, attempts, reason in failed:
        # A target's reason may be no text, which must not delay anything.
        args += (one.ticket, one.score, one.attempts, attempts, reason.encode(errors="replace"))
    names = (keys.state, keys.queue, keys.attempts, keys.dead, keys.reasons)
    return Command("bury", names, args, _read_settled)


Head = tuple[int, bytes]


class Parked(msgspec.Struct, frozen=True):
    """A parked set as it is: the score and ticket of the lowest message in it (None: it is empty), and how many tickets
    there are, of messages and of what was cancelled.
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
    """What a release took out of parked sets: messages that are in flight from then on, and how many were `appended`.

    `refused`, `left` and `let_past` are as in `Pulled`. `sets` describes by name what each set is like now. A release of one set
    drops tickets whose messages were cancelled, or stand elsewhere: `dropped` is the earliest due time of these.
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
    last: Head | None = None  # of what was appended the due times are not told


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
        _read_left(left),
        _read_sets(sets),
        int(dropped) if dropped else None,
        _let_past(tickets, attempts) if any(attempts) else {},
    )


def release(
    keys: QueueKeys,
    epoch: str,
    topics: Mapping[str, int],
    *,
    known: KnownTopics,
    upto: Head | None,
    most_bytes: int = MOST_BYTES,
    bounds: Sequence[Bound] = (),
    node_now: Now = "",
    now: Now = "",
    retention: Retention = RETENTION,
    traced: bool = False,
    version: str = "",
) -> Command[Released | Outdated | None]:
    """Take the earliest messages out of the sets of topics, of each as many as `topics` says, but none behind `upto`,
    the place that the pulls have come to (None: all that is due). `known` has the same topics, in the same order.
    Messages of streams here are appended, within their `bounds`.

    None means fenced.
    """
    args: list[Arg] = [
        epoch, now, node_now, version, *(upto or ("", "")), most_bytes, retention.window, retention.most,
        "1" if traced else "0", len(topics), len(bounds), *known.args,
    ]  # fmt: skip
    for bound in bounds:
        args += bound.args
    args += topics.values()
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
    """Take `most` messages out of the set of a route or a lane, as `release` does it for topics.

    If `most` is None, all of them are moved into the sets of their topics instead, some at a time. `begin` (0 to 1) takes
    them from somewhere within: a probe must not always be the same message. None means fenced.
    """
    args: list[Arg] = [
        epoch, now, node_now, version, *(upto or ("", "")), MOST_BYTES, 0, 0, "0", 0, 0,
        name, "all" if most is None else most, f"{begin:.6f}",
    ]  # fmt: skip
    return Command("release", (*_keys_to_deliver(keys), keys.parked(name)), args, _read_released)


def repair(
    keys: QueueKeys, parked: Sequence[str], cursor: str, look: int = 500, *, entry: str = "", now: Now = ""
) -> Command[tuple[str, int, int]]:
    """Check a page of the pool. Returns the next cursor, the repaired tickets, and the records that were buried as
    corrupt.
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
