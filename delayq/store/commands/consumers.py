"""The commands of consumers of a stream in delayq's own Redis: receive, acknowledge, extend, hand back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from delayq.store.commands.command import Arg, Command, Now, plain, texts
from delayq.store.keys import ConsumerKeys, QueueKeys

__all__ = [
    "CONSUMER",
    "MOST_RECEIVED",
    "MOST_RECEIVED_BYTES",
    "Act",
    "FilterOfGroup",
    "Lease",
    "ReceivedEntries",
    "Settled",
    "StreamEntry",
    "UnknownGroup",
    "give_up",
    "held_calls",
    "receive",
    "settle_received",
    "stream_entry",
]

#: The consumer of each group in Redis.
CONSUMER: Final = "delayq"
#: No call receives more messages.
MOST_RECEIVED: Final = 1_000
#: No call receives more bytes of messages, unless the first message alone has more (see `receive.lua`).
MOST_RECEIVED_BYTES: Final = 2_000_000


class Lease(msgspec.Struct, frozen=True):
    """Which call holds which entries of a stream: their ids, a space between two."""

    entries: str
    call: str


class StreamEntry(msgspec.Struct, frozen=True):
    """An entry of a stream, leased to one call.

    `deliveries` counts its leases, this one included, and `hand_backs` how often consumers handed it back. `reasons` are theirs,
    a line each. `exhausted`: it has had more leases than the policy allows.
    """

    lease: Lease
    deliveries: int
    hand_backs: int
    exhausted: bool
    reasons: str
    fields: dict[str, bytes]


class ReceivedEntries(msgspec.Struct, frozen=True):
    """The messages that a call leased, the time of the server, and when the next lease or pause of the group ends (Unix ms).

    If all messages are new to the group and have the same fields, `names` has the names of these fields. Then `rows` has the
    entry id and the values of each message, one after another. Else `rows` has six words of each message, see `receive.lua`.
    `making` is the name of the group in this stream: another one after it was deleted and made again.
    """

    call: str
    now: int
    next: int | None
    names: list[str]
    rows: list[Any]
    making: str = ""

    @property
    def entries(self) -> list[StreamEntry]:
        """The messages one by one."""
        if self.names:
            each = zip(*(self.rows[at :: len(self.names) + 1] for at in range(len(self.names) + 1)), strict=True)
            return [
                StreamEntry(Lease(id.decode(), self.call), 1, 0, False, "", dict(zip(self.names, values, strict=True)))
                for id, *values in each
            ]
        return [
            StreamEntry(
                Lease(id.decode(), self.call),
                count,
                backs,
                exhausted == b"1",
                reasons.decode(),
                {fields[i].decode(errors="replace"): fields[i + 1] for i in range(0, len(fields), 2)},
            )
            for id, count, backs, exhausted, reasons, fields in zip(*(self.rows[at::6] for at in range(6)), strict=True)
        ]


class FilterOfGroup(msgspec.Struct, frozen=True):
    """The group of the call has another filter: nothing was received."""

    tags: tuple[str, ...]


class UnknownGroup(msgspec.Struct, frozen=True):
    """There is no such group, and the call gave no start: nothing was received. `end` is the id of the last entry."""

    end: str = "0-0"


def receive(
    keys: ConsumerKeys,
    group: str,
    call: str,
    most: int,
    lease: int,
    *,
    start: str = "0",
    tags: Sequence[str] = (),
    most_deliveries: int = 16,
    share: tuple[int, bool] | None = None,
    now: Now = "",
) -> Command[ReceivedEntries | FilterOfGroup | UnknownGroup]:
    """Lease at most so many messages of a stream to `call`, for `lease` ms.

    A group that is new begins at `start`: '0' is the beginning of the stream, '$' its end, else it is an entry id. With ''
    no group is made. `tags` are the filter of the group; none lets everything pass. A repeated call gets the messages that it
    still holds. Only a call that holds none leases others. With 0 as `most` no call leases others: it looks for its group, or
    makes it.

    A call of several streams gives the `share` of this one: the most bytes, and whether one message may have more.
    """

    def read(reply: list[Any]) -> ReceivedEntries | FilterOfGroup | UnknownGroup:
        if reply[0] == b"filter":
            return FilterOfGroup(tuple(one.decode() for one in reply[1].split(b"\0") if one))
        if reply[0] == b"unknown":
            return UnknownGroup(reply[1].decode())
        names = [one.decode(errors="replace") for one in reply[3]]
        return ReceivedEntries(
            call, int(reply[1]), int(reply[2]) if reply[2] else None, names, reply[4], reply[5].decode()
        )

    args: tuple[Arg, ...] = (now, group, call, most, lease, start, "\0".join(tags), most_deliveries, CONSUMER)
    if share is not None:
        args = (*args, share[0], int(share[1]))
    return Command("receive", (keys.consumers, keys.stream, keys.leases), args, read)


def held_calls(calls: Sequence[tuple[ConsumerKeys, str]]) -> Command[list[bool]]:
    """Whether each of these calls holds messages, so that a call of the same name is a repeat. In a Redis Cluster all groups
    have to be in one slot.
    """
    return Command(
        "held_calls",
        [keys.consumers for keys, _ in calls],
        [call for _, call in calls],
        lambda reply: [one == b"1" for one in reply],
    )


class Act(msgspec.Struct, frozen=True):
    """A change of a lease: acknowledge its messages, extend the lease, hand the messages back, or release them unhandled.

    Entries that delayq did not write are skipped: they are acknowledged and counted, with the reason.

    `ms` is the new lease, or the pause after a hand-back; None means the next one of the list of pauses. `reason` explains the
    hand-back. `making` is that of the group when it was leased: an acknowledgement is repeated only in the same making. None
    means any.
    """

    kind: Literal["ack", "extend", "back", "release", "skip"]
    lease: Lease
    ms: int | None = None
    reason: str = ""
    making: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The result of an act.

    'ok' comes with the time when the lease or the pause ends (Unix ms). 'lost': this call does not hold the message. 'unknown':
    the stream has no such group. 'exhausted': the message was handed back too often, for these reasons, and the caller still
    holds it.
    """

    result: str
    until: int | None = None
    reasons: str = ""


def settle_received(
    keys: ConsumerKeys,
    group: str,
    acts: Sequence[Act],
    *,
    most_hand_backs: int = 16,
    pauses: Sequence[int] = (10_000,),
    now: Now = "",
) -> Command[list[Settled]]:
    """Acknowledge, extend or hand back messages of a stream: a result for each. A repeated call gets the same results."""

    def read(reply: list[Any]) -> list[Settled]:
        settled = list[Settled]()
        for one, answer in zip(acts, reply[1:], strict=True):
            if answer == b"ok":
                settled += [Settled("ok")] * (one.lease.entries.count(" ") + 1)
                continue
            settled += [
                Settled(result.decode(), reasons=more.decode())
                if result == b"exhausted"
                else Settled(result.decode(), int(more) if more else None)
                for result, more in zip(answer[::2], answer[1::2], strict=True)
            ]
        return settled

    each = [
        word
        for one in acts
        for word in (
            one.kind,
            one.lease.entries,
            one.lease.call,
            one.ms if one.ms is not None else "",
            one.reason if one.kind != "ack" else "*" if one.making is None else one.making,
        )
    ]
    return Command(
        "settle_received",
        (keys.consumers, keys.stream, keys.leases),
        (now, group, most_hand_backs, " ".join(map(str, pauses)), CONSUMER, *each),
        read,
    )


def give_up(
    keys: QueueKeys, messages: Sequence[tuple[str, bytes, int, str, bytes]], *, now: Now = ""
) -> Command[list[str]]:
    """Store messages of one queue as dead letters.

    Each message has its id, its content, how often it was received, the reason, and a property as it is in the content. A
    message of the same id, topic and property was given up before. The result of each is 'dead' (now, or it is one already),
    'waiting' (it was redriven), 'taken' (another message has this id) or 'moved'.
    """
    each = [word for one in messages for word in one]
    return Command("give_up", (keys.state, keys.pool, keys.index, keys.dead, keys.reasons), (now, *each), texts)


def stream_entry(stream: str, id: str) -> Command[dict[str, bytes] | None]:
    """The fields of an entry of a stream; None if it was trimmed."""

    def read(reply: list[Any]) -> dict[str, bytes] | None:
        fields = reply[0][1] if reply else None
        return fields and {fields[i].decode(errors="replace"): fields[i + 1] for i in range(0, len(fields), 2)}

    return plain("XRANGE", stream, id, id, read=read)
