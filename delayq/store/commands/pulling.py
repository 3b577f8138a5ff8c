"""What the owner of a queue does to get messages: claim it, pull it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, number, plain
from delayq.store.keys import QueueKeys

__all__ = ["Claimed", "Known", "Pulled", "Traced", "claim", "pull", "stored_epoch", "takes"]


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


class Traced(msgspec.Struct, frozen=True, gc=False):
    """A message that was appended to a stream here, and the W3C trace context that it carries."""

    id: str
    topic: str
    attempt: int
    traceparent: str


class Pulled(msgspec.Struct, frozen=True, gc=False):
    """What a pull took. `now` is ms with `micro` µs behind; `next_due` is None when nothing is left.

    `start` counts the tickets before the first one looked at, `last` is (score, ticket) of the last one; the four
    lists belong together. `refused` has the topics whose stream takes nothing, with the error of Redis; their messages
    are among those returned. `parked` are the names of the parked sets (None: they were not asked for). `counted` is how
    many messages were ever scheduled, forwarded and cancelled before this pull.
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


def _read_pull(listed: bool, reply: list[Any]) -> Pulled | None:
    if reply[0] == b"fenced":
        return None
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
        {
            topic.decode(): error.decode(errors="replace")
            for topic, error in zip(refused[::2], refused[1::2], strict=True)
        },
        _read_traces(traces) if traces else (),
        tuple(name.decode() for name in parked) if listed else None,
        tuple(map(number, counted)),
    )


def _read_traces(reply: list[bytes]) -> tuple[Traced, ...]:
    texts = [text.decode(errors="replace") for text in reply]
    return tuple(
        Traced(id, topic, number(attempt), trace)
        for id, topic, attempt, trace in zip(texts[::4], texts[1::4], reply[2::4], texts[3::4], strict=True)
    )


def takes(stream: str) -> Command[str]:
    """Whether messages can be appended to a stream: '', or why not. A key that may not be touched is a StoreError."""
    return Command("takes", (stream,), (), lambda reply: reply.decode(errors="replace"))


class Known(msgspec.Struct, frozen=True):
    """A topic whose way is known to a pull: the stream to append to (None: it is returned) and its MAXLEN.

    `per_queue`: it is the queue's own stream of that name.
    """

    topic: str
    stream: str | None = None
    max_length: int | None = None
    per_queue: bool = False

    def key(self, keys: QueueKeys) -> str | None:
        """The stream's key."""
        return self.stream if self.stream is None or not self.per_queue else keys.stream(self.stream)


def pull(
    keys: QueueKeys,
    epoch: str,
    *,
    offset: int,
    behind: bytes = b"",
    last_in_flight: bytes = b"",
    room: int,
    look: int = 500,
    most_bytes: int = 8 * 1024 * 1024,
    fresh: bool = False,
    known: Sequence[Known] = (),
    unlisted_general: bool = True,
    node_now: Now = "",
    now: Now = "",
    retention: Retention = RETENTION,
    traced: bool = False,
    listed: bool = False,
) -> Command[Pulled | None]:
    """Take due messages from `offset` (a due) on, behind the ticket last looked at or the last one in flight there.

    None means fenced. `traced`: `traces` of what is appended are wanted; `listed`: the names of the parked sets are.
    """
    streams = [stream for one in known if (stream := one.key(keys)) is not None]
    args: list[Arg] = [
        epoch, now, node_now, offset, behind, last_in_flight, room, look, most_bytes, "1" if fresh else "0",
        "general" if unlisted_general else "unknown", retention.window, retention.most, "1" if traced else "0",
        "1" if listed else "0",
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
        partial(_read_pull, listed),
    )
