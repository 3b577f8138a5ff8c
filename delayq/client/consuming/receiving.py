"""The plan by which a call of a consumer leases messages of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final
from zlib import crc32

import msgspec

from delayq.base.errors import Conflict, DelayqError, InvalidMessage, StoreError, StoreUnavailable
from delayq.client.consuming.entries import Leased, message_of, new_messages, why_foreign
from delayq.client.consuming.giving_up import GivenUp, bury
from delayq.client.consuming.groups import Consumer, failure_of, make_group, streams_of_group
from delayq.client.consuming.leases import ACK, LONGEST_LEASE, SHORTEST_LEASE
from delayq.client.consuming.settling import changes_of_leases, results_of
from delayq.client.consuming.streams import TopicStreams
from delayq.client.handshake import learn_policies
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_call
from delayq.store import commands
from delayq.store.commands import (
    MOST_RECEIVED,
    MOST_RECEIVED_BYTES,
    Act,
    Command,
    ReceivedEntries,
    Settled,
    StreamEntry,
    UnknownGroup,
)
from delayq.store.keys import ConsumerKeys, new_id

#: After so many leases that ended, a message becomes a dead letter unless its policy differs.
MOST_ENDED_LEASES: Final = 16
#: A call looks so often for other messages if it has received only entries that delayq did not write.
ROUNDS: Final = 8


class ReceivedPage(msgspec.Struct, frozen=True):
    """The messages that a call received, and the time of the server (`now`).

    `next` is when the next lease or pause of the group ends. New messages arrive in `streams`. All times are Unix ms.
    `lost` has the leases that were to be acknowledged and are lost, or whose acknowledgement failed.
    """

    messages: list[Leased]
    now: int
    next: int | None
    streams: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class _Share(msgspec.Struct, frozen=True):
    """How much of a call comes from one stream: so many messages and bytes, and whether one message may be larger."""

    place: str
    most: int
    of_bytes: tuple[int, bool] = (MOST_RECEIVED_BYTES, True)


class _Call(msgspec.Struct):
    """A call that receives from streams: what it asks, and what it has got so far.

    `acks` has the acknowledgements that go before its first command, and their leases are `acked`. The messages of `spent` have
    had too many leases, and have a place in the answer if they are received all the same. The entries of `foreign` are not
    delayq's. `soonest` has the ends of leases by place.
    """

    consumer: Consumer
    streams: TopicStreams
    name: str
    most: int
    lease: int
    most_leases: int
    acked: Sequence[str] = ()
    acks: list[tuple[list[int], Command[list[Settled]]]] = []
    lost: list[str] = []
    messages: list[Leased] = []
    spent: list[tuple[int, GivenUp]] = []
    foreign: list[tuple[str, StreamEntry, str]] = []
    soonest: dict[str, int] = {}
    failed: list[DelayqError] = []
    now: int = 0

    @property
    def places(self) -> list[str]:
        """The places of the streams. Each is first equally often, whatever the calls' names are."""
        places = [*self.streams.by_place]
        turn = crc32(self.name.encode()) % len(places) if self.has_several else 0
        return places[turn:] + places[:turn]

    @property
    def has_several(self) -> bool:
        """Whether it receives from several streams."""
        return len(self.streams.by_place) > 1

    @property
    def is_answered(self) -> bool:
        """Whether the call has got messages."""
        return bool(self.messages or self.spent)

    @property
    def room(self) -> int:
        """How many messages it may still get."""
        return self.most - len(self.messages) - len(self.spent)

    def keys(self, place: str) -> ConsumerKeys:
        """The keys of the group in a stream."""
        return self.streams.keys.consumers(self.streams.by_place[place], self.consumer.group)

    def ask(self, share: _Share) -> Command[Any]:
        """The command that receives a share of a stream."""
        return commands.receive(
            self.keys(share.place),
            self.consumer.group,
            self.name,
            share.most,
            self.lease,
            start="",
            tags=self.consumer.tags,
            most_deliveries=self.most_leases,
            share=share.of_bytes if self.has_several else None,
        )


def check_receive(most: int, lease: int, call: str | None = None) -> None:
    """Raise InvalidMessage for a number of messages, a lease (ms) or a name of a call that is not allowed."""
    if not 1 <= most <= MOST_RECEIVED:
        raise InvalidMessage("max", f"is from 1 to {MOST_RECEIVED}")
    if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        raise InvalidMessage("lease", "is from 1 s to 12 h")
    if call is not None:
        check_call(call)


def receive(
    context: Context,
    consumer: Consumer,
    most: int,
    lease: int,
    call: str | None = None,
    ack: Sequence[str] = (),
    *,
    is_new: bool = False,
) -> Plan[ReceivedPage]:
    """Lease at most so many messages of a topic for `lease` ms.

    A call of the same name as one that still holds messages is a repeat: it gets these in all streams, and leases no others. A
    call without a name, or one that `is_new`, is none. The leases of `ack` are acknowledged before, in the same packet. Raises
    OtherFilter if the group has another filter, and a StoreError if no stream could be asked.
    """
    check_receive(most, lease, call)
    streams = yield from streams_of_group(context, consumer)
    yield from learn_policies(context)
    given = context.policies.policy(consumer.topic).max_deliveries
    most_leases = MOST_ENDED_LEASES if given is None else given
    this = _Call(consumer, streams, call or new_id(), most, lease, most_leases)
    _acknowledge(this, ack)
    if call is not None and not is_new and this.has_several:
        yield from _take_held(this)
    yield from _take_others(this)
    if this.failed and not this.is_answered:
        raise this.failed[0]
    context.groups.saw(this.now)
    if this.spent:
        yield from _bury_spent(context, this)
    next_end = min(this.soonest.values(), default=None)
    return ReceivedPage(this.messages, this.now, next_end, tuple(streams.by_place.values()), tuple(this.lost))


def _acknowledge(this: _Call, tokens: Sequence[str]) -> None:
    """Let the first commands of the call acknowledge these leases before."""
    if tokens:
        this.acked, wanted = tokens, list(zip(tokens, repeat(None), repeat(ACK), strict=False))
        this.acks, unknown, _ = changes_of_leases(this.streams, this.consumer.group, wanted)
        this.lost += [tokens[at] for at in unknown]


def _answers(this: _Call, asked: list[Command[Any]]) -> Plan[list[Any]]:
    """The answers to these commands. The acknowledgements go before the first of them."""
    acks, this.acks = this.acks, []
    answers = yield [command for _, command in acks] + asked
    for (numbers, _), answer in zip(acks, answers, strict=False):
        results = results_of(numbers, answer)
        this.lost += [this.acked[at] for at, one in results if isinstance(one, StoreError) or one.result != "ok"]
    return answers[len(acks) :]


def _take_held(this: _Call) -> Plan[None]:
    """Receive again what calls of the same name hold. Raises the first error: the caller repeats, and gets all messages."""
    asked = [commands.held_calls([(this.keys(place), this.name)]) for place in this.places]
    answers = yield from _answers(this, asked)
    holding = [place for place, found in zip(this.places, answers, strict=True) if found == [True]]
    if holding:
        yield from _take(this, [_Share(place, 0) for place in holding])
    if this.failed:
        raise this.failed[0]


def _take_others(this: _Call) -> Plan[None]:
    """Receive messages that no call holds, unless the call has got some, and skip entries that are not delayq's."""
    for _ in range(ROUNDS):
        left = [] if this.is_answered else this.places
        while left and this.room > 0:
            shares = _shares(this, left)
            left = left[len(shares) :]
            yield from _take(this, shares)
        if not this.foreign:
            break
        yield from _skip(this)
    large = [place for place, then in this.soonest.items() if then <= this.now and this.has_several]
    if large and not this.is_answered:  # none of the first messages fits into the share of its stream
        yield from _take(this, [_Share(large[0], this.most)])


def _take(this: _Call, wanted: Sequence[_Share]) -> Plan[None]:
    """Receive shares of streams. Makes the group in those that do not have it."""
    answers = yield from _answers(this, [this.ask(share) for share in wanted])
    if new := [at for at, answer in enumerate(answers) if isinstance(answer, UnknownGroup)]:
        yield from make_group(this.consumer, this.streams)
        again = yield [this.ask(wanted[at]) for at in new]
        for at, answer in zip(new, again, strict=True):
            answers[at] = answer
    for share, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, ReceivedEntries):
            _add(this, share.place, answer)
        elif isinstance(answer, UnknownGroup):
            this.failed.append(StoreUnavailable(f"the group {this.consumer.group} is deleted meanwhile; receive again"))
        elif failure := failure_of(this.consumer, this.streams.by_place[share.place], answer):
            this.failed.append(failure)


def _add(this: _Call, place: str, answer: ReceivedEntries) -> None:
    """Add what was received from a stream."""
    group, this.now = this.consumer.group, answer.now
    if answer.next is not None:
        this.soonest[place] = answer.next
    new = new_messages(group, place, answer) if answer.names else None
    if new is not None:
        this.messages += new
        return
    reason = f"the lease of a consumer of group {group} ended {this.most_leases} times"
    for entry in answer.entries:
        if why := why_foreign(entry.fields):
            this.foreign.append((place, entry, why))
            continue
        message = message_of(group, place, entry, answer.making)
        if entry.exhausted:
            given_up = GivenUp(this.streams.by_place[place], entry.lease, message, reason)
            this.spent.append((len(this.messages), given_up))
        else:
            this.messages.append(message)


def _skip(this: _Call) -> Plan[None]:
    """Acknowledge entries that delayq did not write, and count them. After an error they are received, and skipped, again."""
    acts: dict[str, list[Act]] = {}
    for place, entry, why in this.foreign:
        acts.setdefault(place, []).append(Act("skip", entry.lease, reason=why))
    this.foreign.clear()
    yield [commands.settle_received(this.keys(place), this.consumer.group, some) for place, some in acts.items()]


def _shares(this: _Call, places: Sequence[str]) -> list[_Share]:
    """The shares of the next streams, together as many messages and bytes as the call has room for.

    If there are several streams, the first one of the call gets half of the bytes, or one message, however large it is. Each
    stream is the first one equally often, so a large message does not wait permanently behind those of other streams.
    """
    if not this.has_several:
        return [_Share(places[0], this.room)]
    each, more = divmod(this.room, len(places))
    asked = places if each else places[:more]
    most_bytes = MOST_RECEIVED_BYTES - sum(len(one.body) for one in this.messages)
    is_first = len(places) == len(this.streams.by_place)
    own = most_bytes // (1 if len(asked) == 1 else 2 if is_first else len(asked))
    others = (most_bytes - own) // max(1, len(asked) - 1)
    return [
        _Share(place, each + (at < more), (max(0, others if at else own), is_first and not at))
        for at, place in enumerate(asked)
    ]


def _bury_spent(context: Context, this: _Call) -> Plan[None]:
    """Make messages whose leases ended too often dead letters.

    If another message has the id of the dead letter, the call receives the message all the same: nobody else would tell of it.
    """
    results = yield from bury(context, [one for _, one in this.spent], this.consumer.reserved)
    for (at, one), result in reversed([*zip(this.spent, results, strict=True)]):
        if isinstance(result, Conflict):
            this.messages.insert(at, one.message)
